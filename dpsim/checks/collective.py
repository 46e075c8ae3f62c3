"""`dpsim collective`: tables of one collective, as they are asked for, beside measurements."""

from __future__ import annotations

import numbers
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpsim._version import __version__
from dpsim.core.presented import Presented
from dpsim.core.record import Refused
from dpsim.core.refusals import brief
from dpsim.core.units import parse
from dpsim.machines.devices import SOCKETS
from dpsim.measurements.findings import OPERATIONS, Curve, merged
from dpsim.measurements.readers import read_any
from dpsim.predict.collective import MOST_RANKS, RankGroup, Setup, check_operation, setup_of

SCHEMA_VERSION = 1
#: what nccl-tests calls otherwise
_NCCL_TESTS = {"alltoall": "all_to_all", "sendrecv": "send", "bcast": "broadcast"}
#: most sizes, and most node counts, of one table
MOST = 1000


@dataclass(frozen=True)
class CollectiveAnswer(Presented):
    """What a collective takes: a table for each number of nodes."""

    operation: str
    setup: Setup
    groups: tuple[RankGroup, ...]

    def __repr__(self) -> str:
        count = len(self.groups)
        tables = f"{count:,} table{'s' * (count != 1)}"
        return f"CollectiveAnswer({self.operation} on {self.setup.machine.name}: {tables})"

    @property
    def document(self) -> dict[str, Any]:
        """Everything as plain data, in SI units."""
        return document(self.operation, self.setup, self.groups)


def collective(
    operation: str,
    cluster: str | Path,
    *,
    nodes: str | int | Sequence[int] = "1",
    sizes: str | float | Sequence[str | float] = "1KiB:8GiB",
    factor: int = 2,
    nccl: str = "",
    algorithm: str = "auto",
    protocol: str = "auto",
    sockets: int = 0,
    calibration: str | Path | None = None,
    compare: str | Path | None = None,
    groups: int = 1,
    routing: str = "",
    seed: int = 0,
    sharp: bool = False,
    sets: Sequence[str] = (),
) -> CollectiveAnswer:
    """Time and bandwidth of `operation` on `cluster` by size, for each number of nodes.

    nodes        "1:16" (by doubling), "1,2,8", or numbers
    sizes        "1KiB:8GiB" by `factor`, or texts or numbers [B]; unsharded buffers
    nccl         its version; "": the newest.  algorithm, protocol: NCCL's, or auto
    sockets      TCP connections per channel; 0: NCCL's.  compare: what nccl-tests wrote, beside it
    calibration  measured curves.  groups: so many at once, of every so many-th rank
    routing      over spine switches: balanced, or ecmp with `seed`
    sharp        switches add; sets: keys that vary the machine, as "cluster.nics_per_node=4"

    Raises Refused where one of them is not right, or is not modelled.
    """
    check_operation(operation := named(operation))
    curves = None if calibration is None else Path(calibration)
    library = _library(nccl, algorithm, protocol, sockets, sharp)
    setup = setup_of(_machine(cluster), library, curves, sets=sets)
    setup = routed(setup, routing, seed) if routing else setup
    if sharp:
        check_sharp(setup, _counts(nodes))
    found = tables(setup, operation, _counts(nodes), _sizes(sizes, factor), groups)
    return CollectiveAnswer(operation, setup, _beside(_through(found, sockets), compare))


def _beside(found: tuple[RankGroup, ...], file: str | Path | None) -> tuple[RankGroup, ...]:
    """The same with what a file has measured, where there is one."""
    return found if file is None else compared(found, read_any(Path(file)).curves)


def _library(
    version: str, algorithm: str, protocol: str, sockets: int, sharp: bool
) -> dict[str, Any]:
    """NCCL's keys."""
    known = {"version": version, "algorithm": algorithm, "protocol": protocol, "sharp": sharp}
    return {**known, "sockets": sockets or None}


def _machine(given: Any) -> str:
    """The name or file of a machine."""
    if not isinstance(given, str | Path):
        raise Refused(f"cluster: {brief(given)} is no machine; its name or file is, as dgx-h100")
    return str(given)


def _counts(nodes: str | int | Sequence[int]) -> tuple[int, ...]:
    """A range's counts, or those that are listed."""
    if isinstance(nodes, str):
        return node_counts(nodes)
    listed = nodes if isinstance(nodes, Iterable) else [nodes]
    return node_counts(",".join(map(str, listed)))


def _sizes(given: str | float | Sequence[str | float], factor: int) -> tuple[int, ...]:
    """A range's sizes, or those that are listed, each a text or a number [B]."""
    if isinstance(given, str):
        return sizes(given, factor)
    listed = given if isinstance(given, list | tuple | range) else [given]
    return tuple(_size(one if isinstance(one, str) else _bytes(one)) for one in listed)


def _bytes(given: Any) -> str:
    """A number of bytes as text."""
    if isinstance(given, bool) or not isinstance(given, numbers.Real):
        raise Refused(f"--sizes: {brief(given)} is no size; 1024, '1 MiB' or '1KiB:8GiB' are")
    return f"{given} B"


def tables(
    setup: Setup, operation: str, counts: Iterable[int], sizes: Sequence[float], at_once: int = 1
) -> tuple[RankGroup, ...]:
    """A group for each number of nodes, all GPUs of them in use; or so many groups at once."""
    per_node = setup.per_node
    if at_once == 1:
        return tuple(setup.group(operation, n * per_node, n, sizes) for n in counts)
    return tuple(setup.groups(operation, n * per_node, n, sizes, at_once) for n in counts)


def routed(setup: Setup, routing: str, seed: int) -> Setup:
    """`setup` with flows over its spine switches spread evenly ("balanced") or hashed ("ecmp")."""
    if routing not in ("balanced", "ecmp"):
        raise Refused(f"--routing: {routing[:40]!r} is neither balanced nor ecmp")
    return replace(setup, changes={**setup.changes, "routing": routing, "seed": seed})


def check_sharp(setup: Setup, counts: Sequence[int]) -> None:
    """Refused where there is nothing that SHARP could do: all counts of nodes are one."""
    if max(counts) == 1:
        raise Refused(
            f"--sharp: switches between nodes add; {setup.machine.name} is asked for one node "
            "only, --nodes 2:16 has several"
        )


def _through(groups: tuple[RankGroup, ...], sockets: int) -> tuple[RankGroup, ...]:
    """`groups`; Refused where `sockets` are asked for, and no ranks exchange through TCP."""
    if sockets and not any(group.kind in SOCKETS for group in groups):
        kinds = ", ".join(dict.fromkeys(group.kind for group in groups))
        raise Refused(
            f"--sockets: ranks exchange over {kinds}, and not through TCP; --nodes 2 of a machine "
            "whose network is ethernet, or --set cluster.inter_node_kind=ethernet, would"
        )
    return groups


def named(operation: str) -> str:
    """`operation` by its name here, where nccl-tests has another; case, spaces, hyphens and
    underscores do not count.  Refused where it is no text.

    >>> named("allreduce"), named("reduce-scatter"), named("AllToAll"), named("sendrecv")
    ('all_reduce', 'reduce_scatter', 'all_to_all', 'send')
    """
    if not isinstance(operation, str):
        raise Refused(f"operation: {brief(operation)} is no collective; all_reduce is one")
    joined = re.sub(r"[\s_-]", "", operation.lower())
    known = {one.replace("_", ""): one for one in OPERATIONS} | _NCCL_TESTS
    return known.get(joined, operation)


# -- what is asked for ----------------------------------------------------------------------------


def node_counts(text: str) -> tuple[int, ...]:
    """ "1:16" as 1, 2, 4, 8, 16 (the last one always), which is "1:16:x2" too; "1,3,8" as it
    stands."""
    doubled = re.fullmatch(r"([^:]+:[^:]+):x2", text)
    first, colon, last = (doubled[1] if doubled else text).partition(":")
    if not colon:
        found = tuple(_count(part) for part in text.split(","))
        if len(set(found)) != len(found):
            raise Refused(f"--nodes: {text[:60]!r} has a count twice")
        return _few(found, "--nodes")
    low, high = _count(first), _count(last)
    if low > high:
        raise Refused(f"--nodes: {text[:60]!r} ends below its start")
    return _few(_steps(low, high, lambda n: n * 2), "--nodes")


def sizes(text: str, factor: int = 2) -> tuple[int, ...]:
    """ "1KiB:8GiB" as nccl-tests' -b, -e and -f: from the first, times `factor`, up to the last."""
    first, colon, last = text.partition(":")
    if not colon and re.fullmatch(r"\s*\d[^-]*-\s*\d.*", text):
        raise Refused(f"--sizes: {text[:60]!r}: a range is written with a colon, as 1MiB:1GiB")
    if not colon and "," in text:
        said = "sizes are a range, times --factor from the first to the last: 1MiB:1GiB"
        raise Refused(f"--sizes: {text[:60]!r}: {said}")
    low, high = _size(first), _size(last if colon else first)
    if low > high:
        raise Refused(f"--sizes: {text[:60]!r} ends below its start")
    if factor < 2:
        raise Refused(f"--factor: {factor} is not at least 2")
    found, at = [], low
    while at <= high:
        found.append(at)
        at *= factor
    return tuple(found)


def _steps(low: int, high: int, after: Callable[[int], int]) -> tuple[int, ...]:
    found, at = [], low
    while at < high:
        found.append(at)
        at = after(at)
    return (*found, high)


def _few(found: tuple[int, ...], what: str) -> tuple[int, ...]:
    if len(found) > MOST:
        raise Refused(f"{what}: {len(found):,} of them; at most {MOST:,} are accepted")
    return found


def _count(text: str) -> int:
    plain = text.strip()
    if not plain.isascii() or not plain.isdigit() or not 1 <= int(plain[:9]) <= MOST_RANKS:
        raise Refused(
            f"--nodes: {text[:40]!r} is not a whole number in 1 … {MOST_RANKS:,}; "
            "write 1:16 or 1,2,8"
        )
    return int(plain[:9])


def _size(text: str) -> int:
    """Bytes; `64K` is 64 KiB, as in nccl-tests' -b and -e."""
    plain = re.sub(r"(?<=\d)([kmgtKMGT])$", lambda end: f"{end[0].upper()}iB", text.strip())
    try:
        found = parse(plain, "B")
    except ValueError as error:
        raise Refused(f"--sizes: {error}") from None
    if not 1 <= found <= 2**50 or found != int(found):
        raise Refused(f"--sizes: {text[:40]!r} is not a whole number of bytes in 1 B … 1 PiB")
    return int(found)


# -- beside a measurement -------------------------------------------------------------------------


def compared(groups: Sequence[RankGroup], curves: Sequence[Curve]) -> tuple[RankGroup, ...]:
    """`groups` with the measured times of the curves of the same ranks (and nodes, where known).

    Sizes that were measured are matched exactly; a repeated size counts with its median.  Refused
    where no size of any group was measured.
    """
    if any(group.at_once > 1 for group in groups):
        raise Refused("--compare: a measurement is of one collective alone, not of --groups")
    found = tuple(_compared(group, curves) for group in groups)
    if not any(line.measured for group in found for line in group.lines):
        operation = groups[0].lines[0].operation
        there = sorted({f"{c.operation} of {c.ranks or 'unknown'} ranks" for c in curves})
        raise Refused(
            f"--compare: measured {', '.join(there) or 'nothing'}, which is no {operation} of a "
            "number of ranks and a size of this table"
        )
    return found


def _compared(group: RankGroup, curves: Sequence[Curve]) -> RankGroup:
    points = [
        point
        for curve in curves
        if curve.operation == group.lines[0].operation
        and curve.ranks == group.ranks
        and curve.nodes in (None, group.nodes)
        for point in curve.points
    ]
    times = {size: seconds for size, seconds, _ in merged(points)}
    lines = tuple(replace(line, measured=times.get(float(line.size))) for line in group.lines)
    return replace(group, lines=lines)


def document(operation: str, setup: Setup, groups: Sequence[RankGroup]) -> dict[str, Any]:
    """Everything as plain data, in SI units."""
    return {
        "schema_version": SCHEMA_VERSION,
        "dpsim_version": __version__,
        "operation": operation,
        "machine": setup.machine.name,
        "calibrated": bool(setup.curves),
        "groups": [
            {
                "nodes": group.nodes,
                "ranks": group.ranks,
                **({"groups_at_once": group.at_once} if group.at_once > 1 else {}),
                "kind": group.kind,
                "lines": [line.document() for line in group.lines],
            }
            for group in groups
        ],
    }
