"""Compile: what every rank issues in a step, as data; strategies, schedules, placement, host."""
