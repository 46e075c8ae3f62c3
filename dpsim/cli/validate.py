"""`dpsim validate`: a table of measured runs in, an error table out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from dpsim.cli.answers import answer
from dpsim.cli.options import Jobs, Json, Text, Where, argument, option, out_option, processes

PLACE = 140
Table = Annotated[Path, argument("A CSV of measured training runs or collectives.", "TABLE")]
Calibrate = Annotated[
    Text,
    option(
        "smallest (default for training runs): one row a series; none (default for "
        "collectives); every:K: every K-th size of each series of collectives.",
        "MODE",
    ),
]
Out = Annotated[Where, out_option("Write predictions.csv, plot and page there.")]


def validate(
    table: Table, calibrate: Calibrate = None, json: Json = False, out: Out = None, jobs: Jobs = 0
) -> int:
    """Predict every measured row of TABLE, and say how far off."""
    from dpsim.accuracy import validated
    from dpsim.report import accuracy as report
    from dpsim.report.progress import progress

    with progress("series", left=True) as bar:
        found = validated(table, calibrate=calibrate, jobs=processes(jobs), tell=bar.of)
    if out is not None:
        report.write_validation(found, out)
    show = report.print_validation
    answer(json, lambda: found.document, lambda console: show(found, console, out))
    became = found.document["status"]
    return 1 if became.get("refused") and not became.get("predicted") else 0
