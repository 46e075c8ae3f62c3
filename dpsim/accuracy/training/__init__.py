"""Measured training runs: tables of them, their scenarios, and how far off predictions are."""
