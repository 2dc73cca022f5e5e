"""Plan and perform a run: candidates, selection, evaluation and the delivered model."""
