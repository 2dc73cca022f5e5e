"""Training: populations of members, their evaluation, and the probe for what they leak."""
