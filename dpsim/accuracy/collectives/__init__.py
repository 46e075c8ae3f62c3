"""Measured collectives: tables of them, what the model says, and how far off that is."""
