"""Networks whose every tensor carries the member on axis 0."""
