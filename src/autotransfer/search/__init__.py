"""The hands-off procedure: what to train, what to keep, what to choose."""
