"""From a row of a table of training runs to the `input:` section of a scenario."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from dpsim.accuracy.rules import told
from dpsim.accuracy.run_words import HostDecoding
from dpsim.accuracy.training.models import ModelChoice
from dpsim.accuracy.training.table import TrainingRow
from dpsim.accuracy.words import vocabulary
from dpsim.core import plugins
from dpsim.core.record import Refused
from dpsim.machines.cores import Cores
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
#: what a column says where nothing is to be assumed, and the GPUs of a node where none says it
NOT_STATED, GPUS = "not stated", 8
_NUMBER, _COUNT = r"(\d+(?:\.\d+)?)", r"(\d{1,9})"
_RATE = re.compile(r"(\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?) ?(images|samples)/s( (?:per|a) node)?")
#: of whom a row says its workers: as dpsim has them, of each process
_EACH = "(?:per|a) (?:gpu|device|process|rank)"
#: and what its numbers mean
_PARTS: tuple[tuple[str, Callable[..., dict[str, Any]]], ...] = (
    (rf"{_COUNT} (?:workers?|threads?)(?: {_EACH})?", lambda n: {"workers": int(n)}),
    (rf"{_COUNT} (?:physical )?cores(?: (?:per|a) node)?",
     lambda n: {"cores": {"physical": int(n)}}),
    (rf"prefetch:? {_COUNT}", lambda n: {"prefetch": int(n)}),
    (rf"{_NUMBER} ?(us|ms|s)(?: (?:per|a) sample)?", lambda n, unit: {"decode": f"{n} {unit}"}),
    (rf"{_NUMBER} ?([km]?)b(?: (?:per|a) sample)?",
     lambda n, unit: {"sample_bytes": f"{n} {unit.replace('m', 'M')}B"}),
)  # fmt: skip
_MADE_UP = re.compile(r"(synthetic|dummy|mock|fake|random)( data)?")
_NO_LIMIT = ("none", "no limit")
#: what is noted of rows on synthetic data
_NOTE = "data are synthetic, so there is no loader and ranks differ by what lasts alone"
_EXAMPLE = "'torch, 8 workers, 26 ms, nvme', '1070 images/s per node' or synthetic"


def input_of(row: TrainingRow, model: ModelChoice, notes: list[str]) -> dict[str, Any]:
    """What feeds the ranks, by the column `loader`, or where it is empty by the task; appends to
    `notes` what is assumed.  Raises Refused for words that are not known."""
    text = " ".join(row.text("loader").lower().split())
    if not text or text == NOT_STATED:
        found = next(told(vocabulary().input, row.text("task").lower()), None)
        if found:
            notes.append(_NOTE)
            return {"input": found[0]}
        return {} if text else _decoding(row, notes)
    if _MADE_UP.fullmatch(text):
        notes.append(_NOTE)
        return {"input": {"synthetic": True}}
    if text in _NO_LIMIT:
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


def assumes_time(row: TrainingRow) -> bool:
    """Whether nothing of `row` says what a sample takes its loader, which is assumed then."""
    text = row.text("loader").lower()
    return not (_RATE.search(text) or re.search(rf"{_NUMBER} ?(?:us|ms|s)\b", text))


def host_decoding(row: TrainingRow) -> HostDecoding | None:
    """How the host decodes the samples of `row`, where the scripts of its source are known."""
    text = row.text("framework").lower()
    for one in vocabulary().decoding:
        if one.words.search(text) and all(
            words.search(row.text(name).lower()) for name, words in one.columns.items()
        ):
            return one
    return None


def decoded_per_s(how: HostDecoding, gpus: int) -> float:
    """Samples a second that the loaders of a full node of `gpus` make together (A79): threads of
    loaders and a process for each GPU share the cores."""
    threads = how.threads * gpus
    work = Cores(physical=how.cores).work(threads + gpus)
    return work * threads / (threads + gpus) / how.seconds


def _decoding(row: TrainingRow, notes: list[str]) -> dict[str, Any]:
    """`input` where nothing is said of a loader: what the host is known to decode with."""
    how = host_decoding(row)
    if how is None:
        return {}
    rate = decoded_per_s(how, int(row.get("gpus_per_node") or GPUS))
    notes.append(
        f"the host decodes, {how.threads} threads a GPU on {how.cores} cores with "
        f"{how.seconds * 1e3:.3g} ms a sample: {rate:,.0f} images/s a node are assumed"
    )
    return {"input": {"rate": f"{rate!r} images/s", "assumed": True}}


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
