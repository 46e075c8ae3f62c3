"""Checks: is something measured normal: a collective, a cluster."""
