"""Measuring: run a training script on one device as rank 0 of any world size, and record it.

`inside` runs in the script's own Python and needs torch and nothing of dpsim; it writes a plain
JSON document.  `runner` starts it and never imports torch; `files` writes the record and a
scenario that plays it.
"""
