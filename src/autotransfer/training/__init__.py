"""Training: populations of members, their evaluation, and the leakage of their latents."""
