"""Models in use: weighted ensembles, their cards and files."""
