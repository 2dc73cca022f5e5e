"""Folder of a run: options, run database, checkpoint files, lock and result."""
