"""`dpsim explain`: where the step goes, what limits it, and what would help."""

from __future__ import annotations

import typer

from dpsim.cli.run import Json, Sets, Source, unfit


def explain(scenario: Source, sets: Sets = None, json: Json = False) -> int:
    """Say where the step of SCENARIO goes and what changes would bring, by re-simulating."""
    from dpsim.explain import explain as explain_prediction
    from dpsim.prediction import predict
    from dpsim.report import canonical_json, console
    from dpsim.scenario import read

    document = explain_prediction(predict(read(scenario, sets or ())))
    if json:
        typer.echo(canonical_json(document))
    else:
        from dpsim.report.tables import print_explanation

        print_explanation(document, console())
    return unfit(document["points"])
