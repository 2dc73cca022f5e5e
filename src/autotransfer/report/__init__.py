"""Report of a run: HTML page, lines for a terminal, methods section, and files for TensorBoard and MOABB."""
