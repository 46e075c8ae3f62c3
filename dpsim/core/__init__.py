"""Core: units, records, plug-ins, strict files, overrides, fitted constants; it knows no subject."""
