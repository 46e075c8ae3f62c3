"""Files of per-rank times: CSV, parquet, Kineto traces."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from dpsim.core.record import Refused
from dpsim.core.yamlfile import located
from dpsim.measurements.readers import content
from dpsim.measurements.readers._trace import around, load
from dpsim.measurements.readers.kineto import Kineto
from dpsim.measurements.stragglers._operations import KNOWN, Key, Operations
from dpsim.measurements.stragglers._table import Times

if TYPE_CHECKING:
    import pandas as pd

#: columns of a table of times
PLAIN = ("rank", "step", "seconds")
#: columns of a trace of operations, as ByteDance-Seed/StragglerAnalysis publishes them (8efcd7f3)
TRACED = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id", "mc")
LARGEST = 256_000_000  # bytes
ACCEPTED = (
    "accepted: CSV or parquet with columns rank, step and seconds; CSV or parquet with columns "
    f"{', '.join(TRACED)}; Kineto traces of several ranks"
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

    if path.stat().st_size > LARGEST:
        raise Refused(f"is larger than {LARGEST:,} bytes")
    try:
        return pd.read_parquet(path)
    except ImportError:
        raise Missing(
            f"{path.name}: parquet needs pyarrow; install it with: pip install 'dpsim[parquet]'"
        ) from None
    except (OSError, ValueError) as error:
        raise Refused(f"is no parquet file: {str(error).splitlines()[0][:80]}") from None


def _csv(path: Path) -> pd.DataFrame:
    import io

    import pandas as pd

    try:
        return pd.read_csv(io.BytesIO(content(path)), encoding="utf-8")
    except (ValueError, pd.errors.ParserError) as error:
        text = str(error).splitlines() or ["empty"]
        raise Refused(f"is no CSV ({text[0][:80]}); {ACCEPTED}") from None


def _frame(frame: pd.DataFrame) -> Times | Operations:
    columns = set(frame.columns)
    if columns >= set(TRACED):
        return _operations(frame)
    if columns >= set(PLAIN):
        return _times(frame)
    known = ", ".join(str(c)[:20] for c in list(frame.columns)[:8]) or "no columns"
    raise Refused(f"has {known}; {ACCEPTED}")


def _whole(frame: pd.DataFrame, column: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    values = _numbers(frame, column)
    if (values != np.floor(values)).any() or (np.abs(values) > 2**53).any():
        raise Refused(f"column {column} holds something that is no whole number")
    return values.astype(np.int64)


def _numbers(frame: pd.DataFrame, column: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    import pandas as pd

    values = pd.to_numeric(frame[column], errors="coerce").to_numpy(dtype=np.float64)
    bad = ~np.isfinite(values)
    if bad.any():
        shown = str(frame[column].iloc[int(bad.argmax())])[:40]
        raise Refused(f"row {int(bad.argmax()) + 1}: {column}: {shown!r} is not a number")
    return values


def _times(frame: pd.DataFrame) -> Times:
    """Several rows of a rank in a step add up."""
    rank, step, seconds = _whole(frame, "rank"), _whole(frame, "step"), _numbers(frame, "seconds")
    if (seconds < 0).any():
        raise Refused(f"row {int((seconds < 0).argmax()) + 1}: seconds is negative")
    return _table(rank.tolist(), step.tolist(), seconds.tolist())


def _table(rank: Sequence[int], step: Sequence[int], seconds: Sequence[float]) -> Times:
    ranks, steps = sorted(set(rank)), sorted(set(step))
    if len(ranks) < 2:
        raise Refused(f"has {len(ranks)} rank; stragglers show among two or more")
    table = np.full((len(steps), len(ranks)), math.nan)
    row, column = ({v: k for k, v in enumerate(values)} for values in (steps, ranks))
    for r, s, t in zip(rank, step, seconds, strict=True):
        here = table[row[s], column[r]]
        table[row[s], column[r]] = t if math.isnan(here) else here + t
    whole = ~np.isnan(table).any(axis=1)
    if not whole.any():
        raise Refused("has no step with a time of every rank")
    kept = tuple(s for s, w in zip(steps, whole, strict=True) if w)
    table = table[whole]
    if (np.median(table, axis=1) <= 0).any():
        raise Refused("has a step in which most ranks take no time")
    return Times(kept, tuple(ranks), table)


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
    start, duration = _numbers(frame, "start_ts"), _numbers(frame, "duration")
    first = np.full(len(steps), np.inf)
    np.minimum.at(first, replica, start)
    start = start - first[replica]
    starts: dict[Key, np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = {}
    ends: dict[Key, np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = {}
    keys = frame.assign(kind=kinds).groupby(["stage", "kind", "seq_id"], observed=True).indices
    for name, rows in keys.items():
        stage, kind, number = cast("tuple[int, str, int]", name)
        key = Key(int(stage), str(kind), int(number))
        place = (replica[rows], columns["dp_rank"][rows])
        for table, values in ((starts, start), (ends, start + duration)):
            table[key] = np.full((len(steps), replicas), math.nan)
            table[key][place] = values[rows]
        if np.isnan(starts[key]).any() or len(rows) != len(steps) * replicas:
            raise Refused(f"{kind} {number} of stage {stage} is not there once on every replica")
    return Operations(tuple(int(s) for s in steps), ranks, starts, ends)
