"""The page that a run ends with."""
