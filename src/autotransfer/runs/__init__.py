"""Folder of a run: options, run database, checkpoints, lock and result."""
