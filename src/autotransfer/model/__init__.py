"""Encoders for populations of networks, with the member on axis 0 of parameters and signals."""
