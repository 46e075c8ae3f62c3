"""`dpsim schema`: the JSON Schema of the scenario file."""

from __future__ import annotations

import typer

PLACE = 120


def schema() -> int:
    """Print the JSON Schema of scenario files (for editors)."""
    from dpsim.describe.jobs import schema as of_files
    from dpsim.report import canonical_json

    draft = "https://json-schema.org/draft/2020-12/schema"
    typer.echo(canonical_json({"$schema": draft, **of_files()}))
    return 0
