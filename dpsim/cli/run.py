"""`dpsim run`: speed-up table, curve and page of a scenario."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

Source = Annotated[
    str, typer.Argument(metavar="SCENARIO", help="A file, or a bundled name such as quickstart.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a key, e.g. cluster.nodes=4. Repeatable."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON document.")]
Out = Annotated[
    Path | None,
    typer.Option("-o", "--out", metavar="DIR", help="Write table, curve, page and JSON there."),
]


def run(scenario: Source, sets: Sets = None, json: Json = False, out: Out = None) -> int:
    """Predict every point of SCENARIO: step time, speed-up, memory, and what limits it."""
    from dpsim.describe.scenario import read
    from dpsim.predict.advice import with_advice
    from dpsim.predict.prediction import predict
    from dpsim.report import canonical_json, console

    prediction = predict(read(scenario, sets or ()))
    if out is not None:
        from dpsim.report.files import write_all

        write_all(prediction, out)
    if json:
        typer.echo(canonical_json(with_advice(prediction)))
    else:
        from dpsim.report.tables import print_run

        print_run(prediction, console(), out)
    return unfit(prediction.points)


def unfit(points: list[dict[str, Any]]) -> int:
    """Exit code: 1 where a point does not fit in memory or has no number."""
    return int(any(point.get("fits") is False or "error" in point for point in points))
