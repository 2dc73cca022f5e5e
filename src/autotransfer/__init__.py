"""AutoTransfer."""
