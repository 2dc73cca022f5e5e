"""A model in use by one person: their windows in order, as they come."""
