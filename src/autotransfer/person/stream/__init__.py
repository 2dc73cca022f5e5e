"""A stream of samples decoded as it comes: source -> filter -> windows -> session -> sink."""
