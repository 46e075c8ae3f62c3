"""`dpsim schema`: the JSON Schema of the scenario file, or of the answer."""

from __future__ import annotations

from typing import Annotated

import typer

from dpsim.cli.options import argument

PLACE = 120
WHAT = ("scenario", "answer")
What = Annotated[
    str, argument("Of scenario files, or of what dpsim run --json prints.", "[scenario|answer]")
]


def schema(what: What = WHAT[0]) -> int:
    """Print the JSON Schema of scenario files (for editors), or of the answer."""
    from dpsim.core.record import Refused
    from dpsim.describe.jobs import schema as of_files
    from dpsim.predict.answer import Answer
    from dpsim.predict.document import schema_of
    from dpsim.report import canonical_json

    if what not in WHAT:
        raise Refused(f"schema {what}: is none of {', '.join(WHAT)}")
    draft = "https://json-schema.org/draft/2020-12/schema"
    found = of_files() if what == "scenario" else schema_of(Answer)
    typer.echo(canonical_json({"$schema": draft, **found}))
    return 0
