"""Models by name: the architectures and the bundled Hugging Face files."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from dpsim.core import plugins
from dpsim.core.files import read_text
from dpsim.core.jsonfile import loads
from dpsim.core.record import Refused
from dpsim.models import Model
from dpsim.models.configurations import bundled_models
from dpsim.models.huggingface import takes_length, usual_length
from dpsim.models.section import HuggingFace, load, make
from dpsim.models.zoo import expanded, zoo_names

#: bytes of a configuration
MOST = 10_000_000


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
    return load_config(folder / f"{name}.json", sequence_length)


def load_config(path: Path, sequence_length: int | None) -> Model:
    """The model of the Hugging Face configuration at `path`, likewise.  Raises Refused where it is
    none that is known."""
    data = loads(read_text(path, MOST))
    tokens = (sequence_length or usual_length(data)) if takes_length(data) else None
    return HuggingFace(huggingface=path.name, sequence_length=tokens).model(path.parent)


def is_config(path: Path) -> bool:
    """Whether the JSON at `path` looks like the configuration of a model."""
    try:
        data = loads(read_text(path, MOST))
    except Refused:  # whoever reads it next says why
        return False
    return isinstance(data, dict) and bool({"model_type", "architectures", "_class_name"} & {*data})
