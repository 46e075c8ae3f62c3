"""`dpsim schema`: the JSON Schema of the scenario file."""

from __future__ import annotations

import typer


def schema() -> int:
    """Print the JSON Schema of scenario files (for editors)."""
    from dpsim.record import json_schema
    from dpsim.report import canonical_json
    from dpsim.scenario import Scenario

    draft = "https://json-schema.org/draft/2020-12/schema"
    typer.echo(canonical_json({"$schema": draft, **json_schema(Scenario)}))
    return 0
