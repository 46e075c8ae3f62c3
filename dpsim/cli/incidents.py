"""`dpsim incidents`: how often jobs were interrupted, as a scenario takes it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from dpsim.cli.answers import answer
from dpsim.cli.options import Json, argument, option

PLACE = 135
File = Annotated[
    Path,
    argument(
        "A table of incidents (CSV: time, cause), the output of sacct --parsable2, or the log of "
        "ml-goodput-measurement.",
        "FILE",
    ),
]
Over = Annotated[str | None, option("For how long it was looked at, as '54 d'.", "TIME")]
Nodes = Annotated[int | None, option("How many nodes were at work.", "NODES")]
Devices = Annotated[int | None, option("How many devices were at work.", "DEVICES")]


def incidents(
    file: File, over: Over = None, nodes: Nodes = None, devices: Devices = None, json: Json = False
) -> int:
    """Count what interrupted real jobs.

    It prints rates with their 90 % intervals, and the sections of a scenario that say the same.
    """
    from dpsim.core.record import Refused
    from dpsim.core.units import Unit
    from dpsim.measurements.incidents import read
    from dpsim.measurements.incidents.counted import Exposure
    from dpsim.report.incidents import print_incidents

    for name, value in (("--nodes", nodes), ("--devices", devices)):
        if value is not None and not 1 <= value <= 10_000_000:
            raise Refused(f"{name}: {value:,} is not in 1 … 10,000,000")
    try:
        seconds = None if over is None else Unit("s", high=1e10, above=True).take(over, True)
    except ValueError as error:
        raise Refused(f"--over: {error}") from None
    found = read(file, Exposure(seconds, nodes, devices))
    answer(json, found.document, lambda console: print_incidents(found, console))
    return 0
