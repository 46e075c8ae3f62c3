"""Calibration: measurements in, fitted parameters with their uncertainty out."""
