"""Measurements: what was measured elsewhere, read: curves, machines, recorded steps, stragglers."""
