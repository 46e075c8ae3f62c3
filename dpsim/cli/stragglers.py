"""`dpsim stragglers`: which rank is slow, since when, and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from dpsim.cli.answers import answer
from dpsim.cli.options import Json, argument, option

PLACE = 130
Files = Annotated[
    list[Path],
    argument(
        "One table of rank, step, seconds (CSV, parquet), one trace of operations, or the "
        "Kineto traces of all ranks.",
        "FILES",
    ),
]
Threshold = Annotated[str, option("How much slower than typical is slow.", "SHARE")]


def stragglers(files: Files, threshold: Threshold = "5 %", json: Json = False) -> int:
    """Say which ranks of FILES are slow and what they cost.

    Exit code 1: there are any.

    For a table, each rank logs rank, step and the seconds of its forward pass in the training loop,
    between two torch.cuda.synchronize(), with broadcast_buffers=False: DDP else begins forward with
    rank 0's buffers, and backward waits for the slowest rank on every rank.
    """
    from dpsim.core.record import Refused
    from dpsim.core.units import parse
    from dpsim.measurements.stragglers import analyse
    from dpsim.report.stragglers import print_stragglers

    try:
        share = parse(threshold, "1")
    except ValueError as error:
        raise Refused(f"--threshold: {error}") from None
    found = analyse(files, share)
    answer(json, found.document, lambda console: print_stragglers(found, console))
    return int(bool(found.stragglers))
