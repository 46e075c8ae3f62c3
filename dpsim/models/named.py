"""Models by name: the architectures and the bundled Hugging Face files."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from dpsim.core import plugins
from dpsim.core.files import read_text
from dpsim.core.jsonfile import loads
from dpsim.models import Model
from dpsim.models.huggingface import takes_length, usual_length
from dpsim.models.section import HuggingFace, bundled_models, load, make
from dpsim.models.zoo import expanded, zoo_names


def model_names() -> tuple[str, ...]:
    """Architectures, bundled Hugging Face files, and the names that stand for one of these."""
    return tuple(sorted({*plugins.names("models"), *bundled_models(), *zoo_names()}))


def load_named(name: str, sequence_length: int | None) -> Model:
    """The architecture, or the bundled Hugging Face file, called `name`; with sequences of that
    many tokens (None: of a usual length) where its samples are sequences."""
    if name in plugins.names("models"):
        model: Model = plugins.find("models", name)().model()
        return model
    if name in zoo_names():
        section = make(expanded({"name": name}), file=True)
        if not isinstance(section, HuggingFace):
            return load(section, Path())
        name = section.huggingface
    folder = Path(str(resources.files("dpsim.models") / "configs"))
    file = f"{name}.json"
    data = loads(read_text(folder / file, 10_000_000))
    tokens = (sequence_length or usual_length(data)) if takes_length(data) else None
    return HuggingFace(huggingface=file, sequence_length=tokens).model(folder)
