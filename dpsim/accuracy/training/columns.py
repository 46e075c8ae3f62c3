"""Columns of a table of training runs: their names, what people call them, and which nobody reads.

>>> named(["GPUs", "Batch per GPU", "per_gpu_batch_size", "Colour"])
('total_gpus', 'batch_per_gpu', 'batch_per_gpu', 'colour')
>>> list(unread(["accelerator", "batch_size", "colour"]))
['column batch_size is not read; batch_per_gpu or global_batch is', 'column colour is not read']
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dpsim.accuracy.words import vocabulary

#: columns that say what was run, and where; the rest of the schema is read by nobody
READ = frozenset(
    (
        "row_id", "series_id", "role", "scaling", "quality", "source_id", "source_repo",
        "source_commit_date", "data_date", "model", "params_m", "task", "padding", "framework",
        "strategy", "strategy_detail", "precision", "accelerator", "gpus_per_node", "nodes",
        "total_gpus", "intra_node", "inter_node", "inter_gbits_s_per_node", "batch_per_gpu",
        "grad_accum", "global_batch", "batch_unit", "seq_len", "tp", "pp", "dp", "cp", "ep",
        "tensor_groups", "schedule", "shard", "act_ckpt", "loader", "compression", "metric",
        "value", "unit", "rel_unc_pct", "throughput_global", "throughput_unit", "step_time_s",
        "tflops_per_gpu", "notes",
    )
)  # fmt: skip
#: of the schema, what tells where a figure is from, and how sure it is
_BESIDE = re.compile(r"source_\w+|\w+_src|license|fabric_status|value_kind|mfu_pct|intra_gbytes_s")
#: thousands and millions of what a time is of
MANY = {"": 1.0, "k": 1e3, "m": 1e6}
#: how a column of steps' times begins; another time may be that of a whole run
_STEP = re.compile(r"(?:step|iteration) ?time\b")
#: how alike the spelling of a column is to one that may be meant
_ALIKE = 0.75


def named(given: Iterable[str]) -> tuple[str, ...]:
    """The columns under their own names: without capitals, and however their words are joined and
    ordered; others as they are, in small letters."""
    own = {name: name for name in READ} | dict(vocabulary().tables.columns)
    words = {_words(name): meant for name, meant in own.items()}
    return tuple(words.get(_words(name), name.lower()) for name in given)


def _words(name: str) -> tuple[str, ...]:
    return tuple(sorted(re.findall(r"[a-z0-9]+", name.lower())))


class MeasuredColumns(NamedTuple):
    """Columns of a table, with those that hold what was measured under their own names.

    unit     of `value`, where the name of its column says it; "" where a column does
    seconds  how long the unit of `step_time_s` is
    others   further columns of rates with their units, which are read where `value` has no number
    held     the column that is `value`
    """

    names: tuple[str, ...]
    unit: str = ""
    seconds: float = 1.0
    others: tuple[tuple[str, str], ...] = ()
    held: str = "value"

    def of_row(self, cells: Mapping[str, str]) -> dict[str, str]:
        """The `cells` of a row, with one rate as `value`: the first that is there, in its unit."""
        others = dict(self.others)
        own = {name: text for name, text in cells.items() if name not in others}
        if self.unit:
            own.setdefault("unit", self.unit)
        filled = self._filled(cells)
        if filled == "value":
            return own
        return own | {"value": cells[filled], "unit": others[filled]}

    def _filled(self, cells: Mapping[str, str]) -> str:
        """The first column of rates that says more than that there is none; `value` if all do."""
        nothing = vocabulary().tables.nothing
        rates = ("value", *(name for name, _ in self.others))
        told = (n for n in rates if n in cells and not nothing.search(cells[n].strip().lower()))
        return next(told, "value")

    def given(self, column: str, cells: Mapping[str, str]) -> str:
        """What the table calls `column`, of whose row it has the `cells`."""
        if column != "value":
            return column
        filled = self._filled(cells)
        return self.held if filled == "value" else filled

    @property
    def kept(self) -> tuple[str, ...]:
        """The columns of rows that `of_row` has made."""
        beside = {name for name, _ in self.others}
        unit = ("unit",) if beside and "unit" not in self.names else ()
        return (*(name for name in self.names if name not in beside), *unit)


def measured_in(columns: Sequence[str]) -> MeasuredColumns:
    """`columns` with the one that holds what was measured as `value`, where none is called so; the
    time of a step beside a rate is `step_time_s`.

    >>> measured_in(["model", "throughput (img/s)"]).names, measured_in(["step time (ms)"]).unit
    (('model', 'value'), 'ms')
    >>> measured_in(["throughput_global", "throughput_unit"]).names
    ('value', 'unit')
    >>> found = measured_in(["throughput (img/s)", "step time (ms)"])
    >>> found.names, found.unit, found.seconds
    (('value', 'step_time_s'), 'img/s', 0.001)
    >>> measured_in(["tokens/s", "img/s"]).others
    (('img/s', 'img/s'),)
    """
    times = vocabulary().tables.times
    steps = [name for name in columns if _STEP.match(name) and _unit_in(name) in times]
    if len(steps) == 1 and "step_time_s" not in columns:
        found = _valued(["step_time_s" if name == steps[0] else name for name in columns])
        if "value" in found.names:
            return found._replace(seconds=times[_unit_in(steps[0])])
    return _valued(columns)


def _valued(columns: Sequence[str]) -> MeasuredColumns:
    """`columns` with one of them as `value`, where none is called so: of several that say their
    unit the first, and beside the time of a step a rate; what further rates there are beside it."""
    names, words = tuple(columns), vocabulary().tables
    if "value" in names:
        return MeasuredColumns(names)
    units = {name: unit for name in names if (unit := _unit_in(name))}
    if "step_time_s" in names:
        units = {name: unit for name, unit in units.items() if unit not in words.times}
    for held, unit in units.items():
        more = ((n, u) for n, u in units.items() if n != held and u not in words.times)
        others = tuple(more) if unit not in words.times else ()
        made = tuple("value" if name == held else name for name in names)
        return MeasuredColumns(made, unit, others=others, held=held)
    own = {"throughput": "value", "throughput_global": "value"}
    own |= {} if "unit" in names else {"throughput_unit": "unit"}
    made = tuple(own.get(name, name) for name in names)
    told = {"unit", "throughput_unit"} & set(names) and made.count("value") == 1
    held = next((name for name in own if name in names and own[name] == "value"), "value")
    return MeasuredColumns(made, held=held) if told else MeasuredColumns(names)


def plain_unit(text: str) -> str:
    """The unit `text` as the vocabulary writes it, where it is one in other words; else as it is.

    >>> plain_unit("Samples per second per GPU"), plain_unit("Sec/step"), plain_unit("TFLOPS/GPU")
    ('samples/s/gpu', 'sec/step', 'tflop/s/gpu')
    >>> plain_unit("tokens per GPU per second"), plain_unit("tps"), plain_unit("parsecs")
    ('tokens/gpu/s', 'tokens/s', 'parsecs')
    >>> plain_unit("tokens_per_second_per_gpu"), plain_unit("img-per-sec")
    ('tokens/s/gpu', 'img/s')
    >>> plain_unit("Seconds per step"), plain_unit("samples/s/GPU (as printed)")
    ('s/step', 'samples/s/gpu')
    """
    words = vocabulary().tables
    if found := words.aside.fullmatch(text.strip().lower()):
        of_a_gpu, own = found["per_gpu"], plain_unit(found["unit"])
        own = f"{own}/gpu" if of_a_gpu else own
        return own if _is_unit(own) else text
    plain = re.sub(r"(?<=[a-z])[_-](?=[a-z])", " ", text.strip().lower())
    low = re.sub(r"\s*(?:/|\bper\b)\s*", "/", plain)
    low = re.sub(r"(?<=/)sec(?:ond)?s?(?=/|$)", "s", low)
    low = re.sub(r"^t(?:era)?flops?(?:/s)?(?=/|$)", "tflop/s", low)
    low = words.rates.get(low, low)
    spelled = "/".join(words.spelled.get(word, word) for word in low.split("/"))
    return next((unit for unit in (low, spelled) if _is_unit(unit)), text)


def _is_unit(text: str) -> bool:
    """Whether the vocabulary has `text` as a unit of a time or of a rate."""
    return _is_known_time(text) or vocabulary().tables.throughput.fullmatch(text) is not None


def _is_known_time(unit: str) -> bool:
    """Whether `unit` is one of times of a step or of a whole run."""
    words = vocabulary().tables
    return unit in words.times or unit in words.run_times


def is_time(unit: str) -> bool:
    """Whether `unit` is one of times: of a step, of a whole run, or of whatever it says."""
    other = vocabulary().tables.other_units_of_time.match(unit.lower())
    return _is_known_time(unit) or other is not None


class CountedTime(NamedTuple):
    """A time of so many things: its unit, how many, and what they are."""

    unit: str
    many: float
    what: str


def counted(unit: str) -> CountedTime | None:
    """What `unit` is a time of, where it counts that; None where it doesn't.

    >>> counted("s/100 batches"), counted("s/kimg").many, counted("ms/batch")
    (CountedTime(unit='s', many=100.0, what='batches'), 1000.0, None)
    """
    found = vocabulary().tables.counted_times.fullmatch(unit.lower())
    if not found:
        return None
    count = float((found["count"] or "1").replace(",", ""))
    many = MANY[found["many"] or found["more"] or ""]
    return CountedTime(found["time"], count * many, found["what"])


def _unit_in(name: str) -> str:
    """The unit that is all of `name` but the word for what was measured; "" without one."""
    words = vocabulary().tables
    bare = re.sub(r"^(?:(?:step|iteration) ?time|throughput|speed|rate|time)\b", "", name)
    unit = bare.strip(" ()[],:=")
    return unit if unit in words.times or words.throughput.fullmatch(unit) else ""


def unread(columns: Iterable[str]) -> Iterator[str]:
    """A sentence for each of these `columns`, under their own names, that nobody reads, with what
    is read instead, where something is near."""
    unclear = {_words(name): meant for name, meant in vocabulary().tables.unclear.items()}
    for name in columns:
        if name in READ or _BESIDE.fullmatch(name):
            continue
        near = difflib.get_close_matches(name, sorted(READ), 1, _ALIKE)
        meant = unclear.get(_words(name)) or "".join(near)
        yield f"column {name[:60]} is not read" + (f"; {meant} is" if meant else "")


def taken(given: Iterable[str]) -> Iterator[str]:
    """A sentence for each of the columns `given` whose name leaves open whose number it holds."""
    for name in given:
        if _words(name) == ("batch",):
            yield (
                f"column {name[:60]} is taken for the batch of one GPU (batch_per_gpu); "
                "global_batch is that of all"
            )
