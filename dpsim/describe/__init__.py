"""Describe: the scenario, its sweep, its jobs, its measured points."""
