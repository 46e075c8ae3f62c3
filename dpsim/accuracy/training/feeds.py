"""From a row of a table of training runs to the `input:` section of a scenario."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from dpsim.accuracy.rules import told
from dpsim.accuracy.training.models import ModelChoice
from dpsim.accuracy.training.table import TrainingRow
from dpsim.accuracy.words import vocabulary
from dpsim.core import plugins
from dpsim.core.record import Refused
from dpsim.machines.storage import storage_names

#: bytes of a photograph of ImageNet (mlcommons/storage at caa90c9c7d6a,
#: configs/dlio/workload/resnet50_a100.yaml)
BYTES = 114_660.0
#: what a part of the column says, and the loader that a name means
_KINDS = (
    (r"(py)?torch|data ?loader", "torch"), (r"tf\.?_?data|tf ?records?", "tf_data"),
    (r"(nvidia )?dali", "dali"), (r"web ?dataset", "webdataset"),
    (r"streaming|hugging ?face( streaming)?", "streaming"),
)  # fmt: skip
_NUMBER = r"(\d+(?:\.\d+)?)"
_RATE = re.compile(r"(\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?) ?(images|samples)/s( (?:per|a) node)?")
#: of whom a row says its workers: as dpsim has them, of each process
_EACH = "(?:per|a) (?:gpu|device|process|rank)"
#: and what its numbers mean
_PARTS: tuple[tuple[str, Callable[..., dict[str, Any]]], ...] = (
    (rf"(\d+) (?:workers?|threads?)(?: {_EACH})?", lambda n: {"workers": int(n)}),
    (r"(\d+) (?:physical )?cores(?: (?:per|a) node)?", lambda n: {"cores": {"physical": int(n)}}),
    (r"prefetch:? (\d+)", lambda n: {"prefetch": int(n)}),
    (rf"{_NUMBER} ?(us|ms|s)(?: (?:per|a) sample)?", lambda n, unit: {"decode": f"{n} {unit}"}),
    (rf"{_NUMBER} ?([km]?)b(?: (?:per|a) sample)?",
     lambda n, unit: {"sample_bytes": f"{n} {unit.replace('m', 'M')}B"}),
)  # fmt: skip
_NONE = re.compile(r"synthetic( data)?|dummy( data)?|none|no limit")
_EXAMPLE = "'torch, 8 workers, 26 ms, nvme', '1070 images/s per node' or synthetic"


def input_of(row: TrainingRow, model: ModelChoice, notes: list[str]) -> dict[str, Any]:
    """What feeds the ranks, by the column `loader`, or where it is empty by the task; appends to
    `notes` what is assumed.  Raises Refused for words that are not known."""
    text = " ".join(row.text("loader").lower().split())
    if not text:
        found = next(told(vocabulary().input, row.text("task").lower()), None)
        return {"input": found[0]} if found else {}
    if _NONE.fullmatch(text):
        return {"input": {"limiting": False}}
    if rate := _RATE.fullmatch(text):
        if not rate[3]:
            notes.append(f"loader: {rate[0]} is taken as what each node is fed")
        return {"input": {"rate": f"{rate[1].replace(',', '')} {rate[2]}/s"}}
    given: dict[str, Any] = {}
    for part in re.split(r"\s*[,;+]\s*", text):
        more = _part(part)
        if twice := given.keys() & more.keys():
            raise Refused(f"loader: {part[:60]!r} says {min(twice)} twice; say it once")
        given |= more
    return {"input": _whole(given, model, notes)}


def _part(text: str) -> dict[str, Any]:
    """The keys of `input` that a part of the column says."""
    for words, kind in _KINDS:
        if re.fullmatch(words, text):
            return {"loader": kind}
    for words, keys in _PARTS:
        if found := re.fullmatch(words, text):
            return keys(*found.groups())
    if (name := text.replace(" ", "-")) in (*storage_names(), "local"):
        return {"storage": name}
    known = ", ".join(storage_names())
    raise Refused(
        f"loader: {text[:60]!r} is not known; write for example {_EXAMPLE} (storages: {known})"
    )


def _whole(given: dict[str, Any], model: ModelChoice, notes: list[str]) -> dict[str, Any]:
    """`given` with what is assumed of samples that nothing is said of."""
    kind = given.get("loader")
    if kind is None:
        raise Refused(f"loader: which? Write for example {_EXAMPLE}")
    if "decode" not in given:
        seconds = plugins.find("loaders", kind).photograph
        if model.language or seconds is None:
            raise Refused("loader: what does a sample take one core? Write for example '8 ms'")
        given["decode"] = "photograph"
        notes.append(f"{seconds!r} s of a core for a photograph are assumed (DLPerf)")
    if "storage" in given and "sample_bytes" not in given:
        if model.language:
            raise Refused("loader: how much is read for a sample? Write for example '16 kB'")
        given["sample_bytes"] = f"{BYTES!r} B"
        notes.append(f"{BYTES / 1e3:.0f} kB a photograph are assumed")
    return given
