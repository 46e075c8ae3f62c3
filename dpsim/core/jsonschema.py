"""JSON Schemas as pydantic writes them, but for defaults that are records."""

from __future__ import annotations

import dataclasses
from typing import Any

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import to_jsonable_python


class Written(GenerateJsonSchema):
    """Schemas whose defaults may be records, to which pydantic 2.7 would give a configuration that
    they have already."""

    def encode_default(self, dft: Any) -> Any:
        """`dft` as JSON has it."""
        plain = dataclasses.is_dataclass(dft)
        return to_jsonable_python(dft) if plain else super().encode_default(dft)
