"""`dpsim calibrate`: measurements in, a calibration file out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from dpsim.cli.answers import answer
from dpsim.cli.options import (
    Json,
    Nodes,
    Operation,
    Ranks,
    Text,
    Where,
    argument,
    option,
    out_option,
)

PLACE = 80
Files = Annotated[
    list[Path], argument("nccl-tests text, Kineto traces, CSV of step times, …", "FILES")
]
Out = Annotated[Where, out_option("Write the calibration there.", "FILE")]
LinkRate = Annotated[
    Text, option("Rate of one NIC, e.g. '100 Gbit/s': curves between nodes hold there alone.")
]
Title = Annotated[str, option("A title for the file.")]


def calibrate(
    files: Files,
    out: Out = None,
    json: Json = False,
    title: Title = "",
    ranks: Ranks = None,
    nodes: Nodes = None,
    operation: Operation = None,
    link_rate: LinkRate = None,
) -> int:
    """Read the measurements in FILES, for scenarios to use.

    They do so with `calibration: FILE`.
    """
    from dpsim.measurements.calibration import gathering
    from dpsim.report import calibration as report
    from dpsim.report.progress import progress

    with progress("files", left=True) as bar:
        gathered = gathering.calibrate(
            files, title=title, operation=operation, ranks=ranks, nodes=nodes,
            link_rate=link_rate, out=out, tell=bar.of,
        )  # fmt: skip
    show = report.print_calibration
    answer(json, gathered.document, lambda console: show(gathered, console, out))
    return 0
