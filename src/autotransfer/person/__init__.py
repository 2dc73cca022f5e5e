"""Use of a model by one subject: online sessions, adaptation, calibration, labels, events and streams."""
