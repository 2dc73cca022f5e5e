"""Models in use: one ensemble, a mixture of several, their cards and files."""
