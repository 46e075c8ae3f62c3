"""Core: units, records, plug-ins, strict files, overrides, fitted constants."""
