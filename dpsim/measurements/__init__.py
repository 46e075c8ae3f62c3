"""Measurements: what was measured elsewhere: calibration, importing, recording, stragglers."""
