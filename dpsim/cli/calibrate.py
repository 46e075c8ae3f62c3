"""`dpsim calibrate`: measurements in, a calibration file out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from dpsim.cli.answers import answer
from dpsim.cli.options import Json, Nodes, Operation, Ranks, Where, argument, option, out_option

PLACE = 80
Files = Annotated[
    list[Path], argument("nccl-tests text, Kineto traces, CSV of step times, …", "FILES")
]
Out = Annotated[Where, out_option("Write the calibration there.", "FILE")]
Title = Annotated[str, option("A title for the file.")]


def calibrate(
    files: Files,
    out: Out = None,
    json: Json = False,
    title: Title = "",
    ranks: Ranks = None,
    nodes: Nodes = None,
    operation: Operation = None,
) -> int:
    """Read the measurements in FILES; scenarios use the result with `calibration: FILE`."""
    from dpsim.measurements.calibration import gathering
    from dpsim.report import calibration as report
    from dpsim.report.progress import progress

    with progress("files", left=True) as bar:
        gathered = gathering.gather(
            files, title, operation=operation, ranks=ranks, nodes=nodes, tell=bar.of
        )
    if out is not None:
        gathering.save(gathered.calibration, out)
    show = report.print_calibration
    answer(json, gathered.document, lambda console: show(gathered, console, out))
    return 0
