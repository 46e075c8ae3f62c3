"""Checks: is something measured normal, a collective or a cluster?  If not, what fits."""
