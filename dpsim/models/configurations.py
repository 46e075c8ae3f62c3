"""Configurations of Hugging Face: those that come with dpsim, and files beside a scenario."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from dpsim.core import plugins, unknown
from dpsim.core.files import read_text
from dpsim.core.places import below
from dpsim.core.record import Refused
from dpsim.models.zoo import zoo_names


def config_text(name: str, base: Path) -> str:
    """The configuration `name`: a file below the scenario's folder `base`, or one that comes with
    dpsim; `Refused` without either."""
    own = below(base, name, "huggingface")
    if own.is_file():
        try:
            return read_text(own, 10_000_000)
        except Refused as error:
            raise Refused(f"{name} {error}", ("huggingface",)) from None
    folder = resources.files("dpsim.models") / "configs"
    bundled = folder / (name if name.endswith(".json") else f"{name}.json")
    if Path(name).name == name and bundled.is_file():
        return bundled.read_text(encoding="utf-8")
    last = Path(name).name
    if last in plugins.names("models"):
        raise Refused(f"is an architecture; write {section_of(last)}", ("huggingface",))
    said = unknown.not_modelled(last) or f"no file {name!r} here and no such bundled model"
    if near := unknown.did_you_mean(last, bundled_models()):
        said += f"; {near}"
    raise Refused(f"{said}; dpsim show models lists those that are bundled", ("huggingface",))


def section_of(name: str) -> str:
    """How a scenario names the model that dpsim knows as `name`; "" where there is none."""
    if name in plugins.names("models") or name in zoo_names():
        return f"{{name: {name}}}"
    known = name in bundled_models()
    return f"{{huggingface: {name}, sequence_length: TOKENS}}" if known else ""


def bundled_models() -> tuple[str, ...]:
    """Names of the Hugging Face configurations that come with dpsim, sorted."""
    folder = resources.files("dpsim.models") / "configs"
    files = (path.name for path in folder.iterdir())
    return tuple(sorted(name.removesuffix(".json") for name in files if name.endswith(".json")))
