"""Online decoding of a stream of samples: source, filter, windows, online session, sink."""
