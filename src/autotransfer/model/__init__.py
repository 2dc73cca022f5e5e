"""Encoders: stacks of networks, linear models and trees, with the member on axis 0 of parameters and signals."""
