"""Calibration: measurements in, one file of curves, steps and layers with their errors out."""
