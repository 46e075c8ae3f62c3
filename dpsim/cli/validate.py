"""`dpsim validate`: a table of measured runs in, an error table out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Table = Annotated[
    Path, typer.Argument(metavar="TABLE", help="A CSV of measured training runs or collectives.")
]
Calibrate = Annotated[
    str | None,
    typer.Option(
        "--calibrate",
        metavar="MODE",
        help="smallest (default for training runs): one row a series; none (default for "
        "collectives); every:K: every K-th size of each series of collectives.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON document.")]
Out = Annotated[
    Path | None,
    typer.Option("-o", "--out", metavar="DIR", help="Write predictions.csv, plot and page there."),
]
Jobs = Annotated[int, typer.Option("--jobs", min=0, help="Processes; default: one per core.")]


def validate(
    table: Table,
    calibrate: Calibrate = None,
    json: Json = False,
    out: Out = None,
    jobs: Jobs = 0,
) -> int:
    """Predict every measured row of TABLE and say how far off the predictions are."""
    import os

    from dpsim.accuracy import validated
    from dpsim.report import canonical_json, console

    found = validated(table, calibrate=calibrate, jobs=jobs or os.cpu_count() or 1)
    if out is not None:
        from dpsim.report.accuracy_files import write_validation

        write_validation(found, out)
    if json:
        typer.echo(canonical_json(found.document))
    else:
        from dpsim.report.accuracy_tables import print_validation

        print_validation(found, console(), out)
    return 0
