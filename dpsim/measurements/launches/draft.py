"""A scenario while it is made of another program's file: each key with what said it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dpsim.core.record import Refused
from dpsim.core.yamlfile import loads
from dpsim.measurements.kinds import NO_MACHINE, NO_MODEL, Account, Entry, Wishes, capped
from dpsim.models.configurations import bundled_models
from dpsim.models.section import needs_length

#: sections in the order in which people read them
_ORDER = (
    "title", "model", "cluster", "parallel", "context", "schedule", "strategy", "compression",
    "collective", "batch", "precision", "optimizer", "execution", "recompute", "input",
)  # fmt: skip
#: tokens of a sequence where neither the file nor the user says them
_TOKENS = 2048
_RUN = "dpsim run FILE"


class Draft:
    """Keys that are taken or assumed, lines that are ignored, and findings."""

    def __init__(self, file: str, kind: str, wanted: Wishes) -> None:
        self.file, self.kind, self.wanted = file, kind, wanted
        self.document: dict[str, Any] = {}
        self.entries: list[Entry] = []
        self.findings: list[str] = []
        self.tokens: int | None = None
        self.attention: tuple[str, str, int] | None = None

    def take(self, path: str, value: Any, said: str, line: int = 0) -> None:
        """Set the key `path` ("batch.per_device"), which the file says with `said`."""
        self._set(path, value)
        self.entries.append(Entry("taken", f"{path}: {_short(value)} ({said})", line))

    def assume(self, path: str, value: Any, why: str, line: int = 0) -> None:
        """Set the key `path`, which the file doesn't say."""
        self._set(path, value)
        self.entries.append(Entry("assumed", f"{path}: {_short(value)} ({why})", line))

    def ignore(self, said: str, why: str, line: int = 0) -> None:
        """Tell that `said` changes nothing here."""
        self.entries.append(Entry("ignored", f"{said}: {why}", line))

    def note(self, said: str, line: int = 0) -> None:
        """Tell something that was understood and sets no key."""
        self.entries.append(Entry("taken", said, line))

    def find(self, what: str) -> None:
        """Tell that something which matters is not modelled, or not in the file."""
        self.findings.append(what)

    def get(self, path: str) -> Any:
        """The value of a key; None where it is not set."""
        found: Any = self.document
        for part in path.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        return found

    def _set(self, path: str, value: Any) -> None:
        *parts, last = path.split(".")
        place = self.document
        for part in parts:
            place = place.setdefault(part, {})
        place[last] = value

    def account(self) -> Account:
        """The scenario with its model and its machine, named where nobody has."""
        if self.get("model") is None:
            self._model()
        self._kernels()
        if self.get("cluster.machine") is None:
            machine = self.wanted.machine
            if machine:
                self.take("cluster.machine", machine, "--machine")
            else:
                self.assume("cluster.machine", NO_MACHINE, "name one here, or with --machine")
        cluster = self.document["cluster"]
        if "nodes" not in cluster and "ranks" not in cluster:
            self.assume("cluster.nodes", 1, "the file doesn't say how many")
        if self.get("batch") is None:
            self.assume("batch.per_device", 1, "the file doesn't say how large a batch is")
        keys = [*_ORDER, *(key for key in self.document if key not in _ORDER)]
        document = {key: self.document[key] for key in keys if self.document.get(key)}
        cluster = document["cluster"]
        document["cluster"] = {"machine": cluster["machine"], **cluster}
        return Account(self.file, self.kind, capped(self.entries), "scenario", document,
                       tuple(self.findings), _RUN)  # fmt: skip

    def _model(self) -> None:
        asked = self.wanted.model
        if not asked:
            self.assume("model", {"name": NO_MODEL}, "name one here, or with --model")
        elif asked.startswith("{"):
            data, _ = loads(asked, "--model")
            if not isinstance(data, Mapping):
                raise Refused("--model: a mapping such as {name: resnet50} is needed")
            self.take("model", dict(data), "--model")
        else:
            self.named(asked, "--model")

    def _kernels(self) -> None:
        """Attention's kernel and the compiler, which are counted for transformers only."""
        model = self.get("model")
        counted = "huggingface" in model or model.get("name") in ("transformer", NO_MODEL)
        if not counted:
            for path in ("execution.compile", "model.attention"):
                said = self.attention if path == "model.attention" else self.get(path)
                if said is not None:
                    self.find(f"{path}: kernels are counted for transformers, not for this model")
            self.document.get("execution", {}).pop("compile", None)
            self.entries = [e for e in self.entries if not e.text.startswith("execution.compile")]
        elif self.attention is not None:
            kind, said, line = self.attention
            self.take("model.attention", kind, said, line)
            if kind == "flash3" and self.get("execution.compile") is None:
                self.assume("execution.compile", False, f"{said}: counted kernel by kernel", line)

    def named(self, name: str, said: str, line: int = 0) -> None:
        """The model that is a bundled one, or a configuration's file."""
        bundled = name in bundled_models()
        key = "huggingface" if bundled or name.endswith(".json") else "name"
        self.take("model", {key: name}, said, line)
        if key == "huggingface" and (not bundled or needs_length(name)):
            self.length()

    def length(self) -> None:
        """Tokens of a sequence, which a transformer needs."""
        if self.tokens:
            self.document["model"]["sequence_length"] = self.tokens
        else:
            why = "the file doesn't say how long a sequence is"
            self.assume("model.sequence_length", _TOKENS, why)

    def known(self, name: str) -> str:
        """The bundled model that a repository's name stands for; "" where it is none.

        ``meta-llama/Meta-Llama-3-8B`` is llama-3-8b: case, the owner and what a release is for
        don't count.
        """
        plain = _plain(name)
        found = [known for known in bundled_models() if _plain(known) == plain]
        return found[0] if plain and len(found) == 1 else ""


def _plain(name: str) -> str:
    bare = name.rstrip("/").rpartition("/")[2].lower()
    bare = re.sub(r"^meta-|[-_](hf|instruct|base|chat)$", "", bare)
    return re.sub(r"[-_.]", "", bare)


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_short(item)}" for key, item in value.items()) + "}"
    return str(value).lower() if isinstance(value, bool) else str(value)
