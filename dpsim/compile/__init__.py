"""Compile: what every rank issues in a step, as data: strategies, schedules, compression, host."""
