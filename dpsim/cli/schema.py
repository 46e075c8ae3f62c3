"""`dpsim schema`: the JSON Schema of the scenario file."""

from __future__ import annotations

import typer


def schema() -> int:
    """Print the JSON Schema of scenario files (for editors)."""
    from pydantic import TypeAdapter

    from dpsim.report import canonical_json
    from dpsim.scenario import Scenario

    document = TypeAdapter(Scenario).json_schema(by_alias=True)
    typer.echo(canonical_json({"$schema": "https://json-schema.org/draft/2020-12/schema", **document}))
    return 0
