"""Marks of fields: ``Annotated[float, Unit("s")]`` says how a value is checked and converted."""

from __future__ import annotations

from typing import Any


class Mark:
    """What every mark of a field derives from."""

    @property
    def ways(self) -> tuple[str, ...]:
        """The values that are tried where somebody asks for the best; none where it has no few."""
        return ()

    def take(self, value: Any, file: bool) -> Any:
        """The value inside for `value`, which is from a file or from Python; ValueError says what
        would be accepted."""
        raise NotImplementedError

    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema of what files may hold."""
        raise NotImplementedError

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        def validate(value: Any, info: Any) -> Any:
            return self.take(value, bool((info.context or {}).get("file")))

        return core_schema.with_info_plain_validator_function(
            validate,
            metadata={"pydantic_js_functions": [lambda schema, handler: self.json_schema()]},
        )
