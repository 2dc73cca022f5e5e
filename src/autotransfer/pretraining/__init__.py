"""Several studies as one, and bases that are trained on them."""
