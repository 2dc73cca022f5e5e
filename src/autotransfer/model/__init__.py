"""Encoders whose parameters and signals have the member of the population on axis 0."""
