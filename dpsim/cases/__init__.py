"""Cases: one point of a scenario, compiled."""
