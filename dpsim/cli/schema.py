"""`dpsim schema`: the JSON Schema of the scenario file, or of an answer."""

from __future__ import annotations

from typing import Annotated

import typer

from dpsim.cli.options import Json, argument

PLACE = 120
WHAT = (
    "scenario", "answer", "explanation", "sweep", "plan", "comparison", "collective", "serve",
    "check", "check-nccl", "stragglers", "incidents", "import", "calibrate", "validate", "measure",
    "show",
)  # fmt: skip
What = Annotated[
    str,
    argument("Of scenario files, or of what a command prints with --json.", f"[{'|'.join(WHAT)}]"),
]


def schema(what: What = WHAT[0], json: Json = False) -> int:
    """Print the JSON Schema of scenario files, or of an answer.

    Editors use that of files. Answers are those of run (answer), explain, sweep, plan, compare,
    collective, or the command of that name.
    """
    from dpsim.core.record import Refused
    from dpsim.describe.jobs import schema as of_files
    from dpsim.report import canonical_json
    from dpsim.report.schemas import schema_named

    if what not in WHAT:
        raise Refused(f"schema {what}: is none of {', '.join(WHAT)}")
    draft = "https://json-schema.org/draft/2020-12/schema"
    found = of_files() if what == WHAT[0] else schema_named(what)
    typer.echo(canonical_json({"$schema": draft, **found}))
    return 0
