"""Files of per-rank times: CSV, parquet, Kineto traces."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import ArrayLike

from dpsim.core import csvfile
from dpsim.core.record import Refused
from dpsim.core.units import LEAST, MEASURED, Unit
from dpsim.core.yamlfile import located
from dpsim.measurements.readers import content, text_content
from dpsim.measurements.readers._trace import around, load
from dpsim.measurements.readers.kineto import Kineto
from dpsim.measurements.stragglers._operations import KNOWN, Operations, OpKey
from dpsim.measurements.stragglers._table import Times

if TYPE_CHECKING:
    import pandas as pd

#: columns of a table of times
PLAIN = ("rank", "step", "seconds")
#: columns of a trace of operations, as ByteDance-Seed/StragglerAnalysis publishes them (8efcd7f3)
TRACED = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id", "mc")
MOST_ROWS = 5_000_000
_SECONDS = Unit("s", high=MEASURED.high)
_PLAIN = re.compile(r"\s*[+-]?([0-9]{1,40}\.?[0-9]{0,20}|\.[0-9]{1,20})([eE][+-]?[0-9]{1,3})?\s*")
ACCEPTED = (
    "accepted: CSV or parquet with columns rank, step and seconds; CSV or parquet with columns "
    f"{', '.join(TRACED)}; Kineto traces of several ranks. Seconds are those in which a rank "
    "computes and waits for no other, such as its forward pass between two "
    "torch.cuda.synchronize()"
)


class Missing(OSError):
    """A package that this file needs is not installed."""


def read(paths: Sequence[Path]) -> Times | Operations:
    """What the files say."""
    return _traces(paths) if len(paths) > 1 else _one(paths[0])


def _one(path: Path) -> Times | Operations:
    head = content(path, 4096)
    if head.startswith(b"PAR1"):
        return _frame(_parquet(path))
    if Kineto().claims(path, head) or head.lstrip()[:1] == b"{":
        raise Refused("is the trace of one rank; give those of all ranks")
    return _frame(_csv(path))


def _parquet(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        frame = pd.read_parquet(io.BytesIO(content(path)))
        return frame.set_axis(pd.RangeIndex(1, len(frame) + 1, name="row"))
    except ImportError:
        raise Missing(
            f"{path.name}: parquet needs pyarrow; install it with: pip install 'dpsim[parquet]'"
        ) from None
    except (OSError, ValueError) as error:
        raise Refused(f"is no parquet file: {str(error).splitlines()[0][:80]}") from None


def _csv(path: Path) -> pd.DataFrame:
    import pandas as pd

    rows = csvfile.table(text_content(path), path.name, MOST_ROWS, once=())
    _known(rows.columns)
    found = list(rows)
    lines = pd.Index([row.line for row in found], name="line")
    return pd.DataFrame([row.cells for row in found], columns=list(rows.columns), index=lines)


def _known(columns: Iterable[str]) -> bool:
    """Whether these columns are a trace's, not a table's; Refused where they are neither's."""
    given = [str(column) for column in columns]
    if not (set(given) >= set(TRACED) or set(given) >= set(PLAIN)):
        shown = ", ".join(column[:20] for column in given[:8]) or "no columns"
        raise Refused(f"has {shown}; {ACCEPTED}")
    return set(given) >= set(TRACED)


def _frame(frame: pd.DataFrame) -> Times | Operations:
    traced = _known(frame.columns)
    if not len(frame):
        raise Refused("has no row below its header")
    return _operations(frame) if traced else _times(frame)


def _whole(frame: pd.DataFrame, column: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    values = _numbers(frame, column, Unit("1", low=-(2.0**53), high=2.0**53))
    if (values != np.floor(values)).any():
        raise Refused(f"column {column} holds something that is no whole number")
    return values.astype(np.int64)


def _numbers(
    frame: pd.DataFrame, column: str, unit: Unit
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The numbers of `column`, as `unit` takes them one by one: there may be millions."""
    import pandas as pd

    cells = frame[column]
    if cells.dtype == object:  # text, of which pandas reads more than plain numbers
        cells = cells.where(cells.astype(str).str.fullmatch(_PLAIN))
    values = pd.to_numeric(cells, errors="coerce").to_numpy(dtype=np.float64)
    bad = ~((values >= unit.low) & (values <= unit.high))
    bad |= (values != 0) & (np.abs(values) < LEAST)
    if bad.any():
        row = int(bad.argmax())
        try:
            unit.bare(str(frame[column].iloc[row]).strip())
        except ValueError as error:
            place = f"{frame.index.name} {frame.index[row]}"
            raise Refused(f"{place}: {column}: {error}") from None
    return values


def _times(frame: pd.DataFrame) -> Times:
    """Several rows of a rank in a step add up."""
    seconds = _numbers(frame, "seconds", _SECONDS)
    return _table(_whole(frame, "rank"), _whole(frame, "step"), seconds)


def _table(rank: ArrayLike, step: ArrayLike, seconds: ArrayLike) -> Times:
    """The steps that have a time of every rank; no memory is taken for the others."""
    ranks, column = np.unique(np.asarray(rank), return_inverse=True)
    steps, row = np.unique(np.asarray(step), return_inverse=True)
    if len(ranks) < 2:
        raise Refused(f"has {len(ranks)} rank; stragglers show among two or more")
    places, inverse = np.unique(row * len(ranks) + column, return_inverse=True)
    times = np.bincount(inverse, weights=np.asarray(seconds))
    whole = np.bincount(places // len(ranks), minlength=len(steps)) == len(ranks)
    if not whole.any():
        raise Refused("has no step with a time of every rank")
    table = times[whole[places // len(ranks)]].reshape(-1, len(ranks))
    if (np.median(table, axis=1) <= 0).any():
        raise Refused("has a step in which most ranks take no time")
    return Times(tuple(steps[whole].tolist()), tuple(ranks.tolist()), table)


def _traces(paths: Sequence[Path]) -> Times:
    """Kineto traces, one for each rank."""
    rank: list[int] = []
    step: list[int] = []
    seconds: list[float] = []
    for path in paths:
        try:
            own, busy = _busy(path)
        except Refused as error:
            raise located(error, path.name, {}) from None
        if own in rank:
            raise Refused(f"{path.name} is another trace of rank {own}")
        rank += [own] * len(busy)
        step += list(busy)
        seconds += list(busy.values())
    return _table(rank, step, seconds)


def _busy(path: Path) -> tuple[int, dict[int, float]]:
    """The rank of the trace at `path`, and how long it computed in each of its steps [s].

    A kernel belongs to the step in which it was launched; those of NCCL do not count.
    """
    data, trace = load(path)
    info = data.get("distributedInfo")
    rank = info.get("rank") if isinstance(info, dict) else None
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < 0:
        raise Refused("does not say which rank it is (distributedInfo.rank)")
    if not trace.compute or not trace.steps:
        raise Refused("has no kernels in steps; profile CUDA, and call the profiler's step()")
    seconds = {step.number: 0.0 for step in trace.steps}
    for kernel in trace.compute:
        launch = trace.launch(kernel)
        step = around(trace.steps, launch.start if launch else kernel.start)
        if step is not None:
            seconds[step.number] += (kernel.end - kernel.start) * 1e-6
    return rank, {number: time for number, time in seconds.items() if time > 0}


def _operations(frame: pd.DataFrame) -> Operations:
    kinds = frame["optype"].astype(str)
    strange = sorted(set(kinds) - set(KNOWN))
    if strange:
        raise Refused(f"operation {strange[0][:40]!r} is not modelled; known: {', '.join(KNOWN)}")
    columns = {name: _whole(frame, name) for name in ("dp_rank", "stage", "rank", "step", "seq_id")}
    if (_whole(frame, "mc") > 0).any():
        raise Refused("several model chunks on a stage (mc above 0) are not modelled")
    steps, replica = np.unique(columns["step"], return_inverse=True)
    replicas, stages = (int(columns[name].max()) + 1 for name in ("dp_rank", "stage"))
    if min(int(columns[name].min()) for name in ("dp_rank", "stage", "seq_id")) < 0:
        raise Refused("dp_rank, stage and seq_id count from 0")
    if replicas * stages > 100_000:
        raise Refused(f"{replicas:,} replicas of {stages:,} stages are too many")
    ranks = np.full((replicas, stages), -1.0)
    ranks[columns["dp_rank"], columns["stage"]] = columns["rank"]
    start = _numbers(frame, "start_ts", Unit("s", low=-1e15, high=1e15))
    duration = _numbers(frame, "duration", _SECONDS)
    first = np.full(len(steps), np.inf)
    np.minimum.at(first, replica, start)
    start = start - first[replica]
    starts: dict[OpKey, np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = {}
    ends: dict[OpKey, np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = {}
    keys = frame.assign(kind=kinds).groupby(["stage", "kind", "seq_id"], observed=True).indices
    for name, rows in keys.items():
        stage, kind, number = cast("tuple[int, str, int]", name)
        key = OpKey(int(stage), str(kind), int(number))
        hole = f"{kind} {number} of stage {stage} is not there once on every replica"
        if len(rows) != len(steps) * replicas:
            raise Refused(hole)
        place = (replica[rows], columns["dp_rank"][rows])
        for table, values in ((starts, start), (ends, start + duration)):
            table[key] = np.full((len(steps), replicas), math.nan)
            table[key][place] = values[rows]
        if np.isnan(starts[key]).any():
            raise Refused(hole)
    return Operations(tuple(int(s) for s in steps), ranks, starts, ends)
