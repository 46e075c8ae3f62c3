"""Reader of what nccl-tests writes with ``-J FILE``.

Layout (NVIDIA/nccl-tests at 0fdb00a3, src/util.cu): ``version``, ``args``, ``env``,
``nccl_version``, ``config`` (nthreads, ngpus, and in it ``devices``: rank, hostname, device_info of
the first GPU of each process) and ``results``: size, count, type, redop, root, ``out_of_place`` and
``in_place`` with time or cpu_time [us], alg_bw, bus_bw [GB/s], nwrong; with ``-I 1`` also
``…_per_iter`` with stdev_us.  Values that are no number are written as "nan".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dpsim.core.record import Refused
from dpsim.measurements.findings import Curve, Findings, Point
from dpsim.measurements.readers import Reader, json_content, opens_json
from dpsim.measurements.readers._nccl_checks import IN_PLACE
from dpsim.measurements.readers._nccl_issue import MOST_GPUS, of_links

_OPERATIONS = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all", "broadcast": "broadcast", "reduce": "reduce", "sendrecv": "send",
}  # fmt: skip
_ARGUMENTS = re.compile(rb'"args"\s*:\s*\[')


class NcclTestsJson(Reader):
    """Results of nccl-tests as JSON become a curve, with the spread of their iterations."""

    accepts = "JSON of nccl-tests (-J)"

    def claims(self, path: Path, head: bytes) -> bool:
        found = opens_json(head) and b'"nccl_version"' in head
        return found and _ARGUMENTS.search(head) is not None

    def read(self, path: Path) -> Findings:
        data = json_content(path)
        results = data.get("results")
        if not isinstance(results, list) or not results:
            raise Refused("results: a list of rows is needed; the test was cut short")
        operation = _operation(data)
        processes, threads, gpus = _processes(data)
        ranks = len(processes) * threads * gpus or None
        nodes = len({str(d.get("hostname")) for d in processes}) or None
        if ranks == 1:
            raise Refused("1 rank moves nothing")
        warnings: list[str] = []
        points = [
            found
            for number, row in enumerate(results, 1)
            if (found := _point(row, number, operation, warnings)) is not None
        ]
        wrong = len(warnings)  # which rows with wrong results alone have made
        if not points:
            raise Refused("has no row with a size and a time")
        version = str(data.get("nccl_version", ""))
        notes = (
            f"nccl-tests, JSON: {len(points)} rows" + (f", NCCL {version}" if version else ""),
        )
        device = next((str(d["device_info"]) for d in processes if d.get("device_info")), None)
        kept, said = of_links(points, operation, gpus)
        warnings += [said] if said else []
        curves = (Curve(operation, ranks, nodes, kept),) if kept else ()
        return Findings(
            path.name, curves, device=device, warnings=tuple(warnings), notes=notes, wrong=wrong
        )


def _processes(data: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], int, int]:
    """The first GPU of each process, how many threads each has, and how many GPUs each of these.

    Files that list `devices` beside `config` are taken, too."""
    found = data.get("config")
    config: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    listed = config.get("devices") or data.get("devices") or ()
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise Refused(f"devices: {str(listed)[:40]!r} is no list")
    counts = [config.get(name, 1) for name in ("nthreads", "ngpus")]
    for name, count in zip(("nthreads", "ngpus"), counts, strict=True):
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_GPUS:
            said = f"config: {name}: {str(count)[:40]!r}"
            raise Refused(f"{said} is no whole number in 1 … {MOST_GPUS:,}")
    return [each for each in listed if isinstance(each, Mapping)], counts[0], counts[1]


def _operation(data: Mapping[str, Any]) -> str | None:
    """The collective, by the program's name; None where that says none."""
    args = data.get("args")
    program = str(args[0]) if isinstance(args, list) and args else ""
    found = re.search(r"(\w+?)_perf(?:_mpi)?$", program.rpartition("/")[2])
    if found and found[1] not in _OPERATIONS:
        raise Refused(f"{found[1][:40]} is not modelled; {', '.join(_OPERATIONS)} are")
    return _OPERATIONS[found[1]] if found else None


def _point(row: Any, number: int, operation: str | None, warnings: list[str]) -> Point | None:
    """One row: full size [B], time [s], spread [s]; None of an empty message."""
    where = f"results, row {number}"
    if not isinstance(row, Mapping):
        raise Refused(f"{where}: a mapping is needed")
    size = _number(row.get("size"), f"{where}: size")
    place = "in_place" if operation in IN_PLACE else "out_of_place"
    timed = row.get(place) or row.get("in_place") or row.get("out_of_place")
    if not isinstance(timed, Mapping):
        raise Refused(f"{where}: no {place} with a time")
    if size <= 0:
        return None
    time = _number(timed.get("time", timed.get("cpu_time")), f"{where}: time")
    if time <= 0:
        raise Refused(f"{where}: a time of {time:g} us for {size:g} bytes")
    if any(_wrong(row.get(one)) for one in ("in_place", "out_of_place")):
        warnings.append(f"{where}: results were wrong")
    spread = row.get(f"{place}_per_iter")
    each = spread.get("stdev_us", 0.0) if isinstance(spread, Mapping) else 0.0
    return size, time * 1e-6, _number(each, f"{where}: stdev_us") * 1e-6


def _wrong(timed: Any) -> bool:
    """Whether what was `timed` had wrong results; -1, or no number, where nothing was checked."""
    told = str(timed.get("nwrong")) if isinstance(timed, Mapping) else ""
    return told.isdecimal() and int(told) > 0


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e18:
        raise Refused(f"{what}: {str(value)[:40]!r} is no number")
    return float(value)
