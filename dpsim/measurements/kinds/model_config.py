"""A model's ``config.json`` of transformers or diffusers: which model it is, and how large."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from dpsim.core import jsonfile
from dpsim.core.record import Refused
from dpsim.measurements.kinds import Account, Entry, Kind, Wishes, head_text
from dpsim.measurements.readers import text_content
from dpsim.models.huggingface import kind_of, read_config, takes_length, usual_length

_MARK = re.compile(
    r'"(model_type|architectures|hidden_size|n_embd|n_embed|d_model|_class_name)"\s*:'
)


class ModelConfig(Kind):
    """A configuration that `model: {huggingface: FILE}` takes."""

    title = "configuration of a model (config.json)"
    rank = 60

    def claims(self, path: Path, head: bytes) -> bool:
        text = head_text(head)
        return text.lstrip()[:1] == "{" and _MARK.search(text) is not None

    def read(self, path: Path, wanted: Wishes) -> Account:
        data = jsonfile.loads(text_content(path))
        if not isinstance(data, Mapping):
            raise Refused("a model configuration must be a mapping (a JSON object)")
        length = takes_length(data)
        usual = usual_length(data) if length else None
        model = read_config(data, sequence_length=usual, name=path.name)
        what = data.get("model_type") or (data.get("architectures") or ["unknown"])[0]
        entries = [
            Entry("taken", f"{str(what)[:60]}, {kind_of(data)}"),
            Entry("taken", f"{model.parameters:,} parameters"),
        ]
        section: dict[str, object] = {"huggingface": path.name}
        if length:
            section["sequence_length"] = usual
            entries.append(Entry("assumed", f"sequence_length: {usual} (the file doesn't say it)"))
        advice = f"model: {{huggingface: {path.name}}}, the file beside the scenario"
        return Account(path.name, self.title, tuple(entries), "model", section, advice=advice)
