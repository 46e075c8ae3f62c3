"""Models by name: the architectures and the bundled Hugging Face files."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from dpsim.core import plugins
from dpsim.models import Model
from dpsim.models.section import HuggingFace, bundled_models


def model_names() -> tuple[str, ...]:
    """Architectures and bundled Hugging Face files."""
    return tuple(sorted({*plugins.names("models"), *bundled_models()}))


def load_named(name: str, sequence_length: int) -> Model:
    """The architecture, or the bundled Hugging Face file, called `name`."""
    if name in plugins.names("models"):
        model: Model = plugins.find("models", name)().model()
        return model
    configs = Path(str(resources.files("dpsim.models") / "configs"))
    return HuggingFace(huggingface=f"{name}.json", sequence_length=sequence_length).model(configs)
