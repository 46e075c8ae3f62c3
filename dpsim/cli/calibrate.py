"""`dpsim calibrate`: measurements in, a calibration file out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Files = Annotated[
    list[Path],
    typer.Argument(metavar="FILES", help="nccl-tests text, Kineto traces, CSV of step times, …"),
]
Out = Annotated[
    Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write the calibration there.")
]
Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON document.")]
Title = Annotated[str, typer.Option("--title", help="A title for the file.")]
Ranks = Annotated[
    int | None, typer.Option("--ranks", min=1, help="Ranks, where a file doesn't say.")
]
Nodes = Annotated[
    int | None, typer.Option("--nodes", min=1, help="Nodes, where a file doesn't say.")
]
Operation = Annotated[
    str | None,
    typer.Option("--operation", help="The collective, where a file doesn't say: all_reduce, …"),
]


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
    from dpsim.measurements.calibration.gathering import gather, save
    from dpsim.report import canonical_json, console

    gathered = gather(files, title, operation=operation, ranks=ranks, nodes=nodes)
    if out is not None:
        save(gathered.calibration, out)
    if json:
        typer.echo(canonical_json(gathered.document()))
    else:
        from dpsim.report.calibration import print_calibration

        print_calibration(gathered, console(), out)
    return 0
