"""What programs that record what a library does have in common."""

from __future__ import annotations

import argparse


def target(about: str | None) -> str:
    """The file to write, from the command line of a program that is `about` this."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("target", help="the file to write")
    where: str = parser.parse_args().target
    return where
