"""What `dpsim check-nccl` does: a file of nccl-tests against what the cluster should reach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpsim._version import __version__
from dpsim.checks.diagnosis import (
    LARGE,
    Band,
    MeasuredSize,
    Sensitivity,
    Verdict,
    bands,
    overall,
    sensitivity,
)
from dpsim.checks.faults import Suspect, explained
from dpsim.core.record import Refused
from dpsim.core.yamlfile import located
from dpsim.machines.devices import same_kind
from dpsim.measurements.findings import Curve, Findings, merged
from dpsim.measurements.readers import HEAD_BYTES, content, read_any, whole_json
from dpsim.measurements.readers.nccl_tests import NcclTests
from dpsim.measurements.readers.nccl_tests_json import NcclTestsJson
from dpsim.predict.collective import Line, RankGroup, Setup, unmodelled
from dpsim.predict.collective_error import band_of

SCHEMA_VERSION = 1
#: what tells more where the machine is another than the named one, and where no fault fits
OTHER_MACHINE = (
    "nvidia-smi topo -m: is this the node that the cluster's name stands for?",
    "dpsim show machines: is another one closer?  Were the ranks on as many nodes as assumed?",
)
#: results that are not what was sent
WRONG = (
    "nvidia-smi -q -d ECC and the logs' Xid events, and the test between two GPUs at a time: which "
    "one, or which link, changes what it moves?",
)
UNKNOWN = (
    "NCCL_DEBUG=INFO: which network, how many NICs and channels, P2P or SHM between GPUs?",
    "nvidia-smi -q -d CLOCK,PERFORMANCE during the test: are GPUs throttled?",
    "run the test again on other nodes, and on pairs of nodes, with nobody else on the network",
)


@dataclass(frozen=True)
class CheckedTable:
    """One table of the file, judged."""

    operation: str
    group: RankGroup
    bands: tuple[Band, ...]
    causes: tuple[Suspect, ...]

    @property
    def verdict(self) -> Verdict:
        return overall(self.bands)

    @property
    def plateau(self) -> Band | None:
        """The band of large sizes, where there are any."""
        return next((band for band in self.bands if band.name == LARGE), None)

    @property
    def deciding(self) -> Band:
        """The band that the verdict is of: the largest of those that have it."""
        return next(band for band in reversed(self.bands) if band.verdict == self.verdict)

    def middle(self, band: Band) -> Line:
        """The row of `band` whose ratio is the median; of two in the middle one that is judged as
        the band is, or the larger size."""
        rows = _lines(self.group, [band])
        rows.sort(key=lambda line: (line.measured or 0.0) / line.seconds)
        pair = rows[(len(rows) - 1) // 2 : len(rows) // 2 + 1]
        return max(pair, key=lambda line: (self.alone(line) == band.verdict, line.size))

    def alone(self, line: Line) -> Verdict:
        """The verdict on one row by itself."""
        return overall(bands([measured_size(line)], self.group.kind))

    @property
    def lone(self) -> list[Line]:
        """The large rows that are low by themselves, where the median one is not."""
        return _lone(self.group, self.plateau) if self.plateau else []

    @property
    def sensitivity(self) -> Sensitivity | None:
        """From where on large sizes would not be normal; None where there are none of them."""
        return sensitivity(self.group.kind) if self.plateau else None


@dataclass(frozen=True)
class CheckedFile:
    """A file and the setup that it is compared with."""

    source: str
    setup: Setup
    tables: tuple[CheckedTable, ...]
    warnings: tuple[str, ...]
    wrong: int = 0

    @property
    def verdict(self) -> Verdict:
        """The worst one of the tables; wrong results are suspicious, however quick."""
        found = overall(band for table in self.tables for band in table.bands)
        return "suspicious" if self.wrong and found != "low" else found

    @property
    def next(self) -> list[str]:
        """What to run next."""
        return [*(WRONG if self.wrong else ()), *next_steps(self.tables)]

    def document(self) -> dict[str, Any]:
        """Everything as plain data, in SI units."""
        return {
            "schema_version": SCHEMA_VERSION,
            "dpsim_version": __version__,
            "file": self.source,
            "machine": self.setup.machine.name,
            "verdict": self.verdict,
            "wrong": self.wrong,
            "tables": [_document(table) for table in self.tables],
            "next": self.next,
            "warnings": list(self.warnings),
        }


def check(
    path: Path,
    setup: Setup,
    *,
    operation: str | None = None,
    ranks: int | None = None,
    nodes: int | None = None,
) -> CheckedFile:
    """Judge every table of the nccl-tests text at `path`; what it doesn't say is given.

    Raises Refused where the file is no such text, or does not fit the machine.
    """
    _require_nccl_tests(path)
    found = read_any(path).told(operation, ranks, nodes)
    if not found.curves:
        why = "; ".join(found.warnings) or "text or JSON of nccl-tests is needed"
        raise Refused(f"{path.name}: has no curve of a collective; {why}")
    known = [c for c in found.curves if c.operation is None or not unmodelled(c.operation)]
    if not known:
        raise Refused(f"{path.name}: {unmodelled(str(found.curves[0].operation))}")
    left = sorted({c.operation or "" for c in found.curves if c not in known})
    warnings = [*found.warnings, *(f"{name} is not modelled and left out" for name in left)]
    warnings += [*_other_device(found, setup), *_full_nodes(known, setup)]
    tables = tuple(_checked(path.name, curve, setup) for curve in _pooled(known))
    return CheckedFile(path.name, setup, tables, tuple(warnings), found.wrong)


def _require_nccl_tests(path: Path) -> None:
    """Refused where the file at `path` is nothing of nccl-tests."""
    try:
        head = content(path, HEAD_BYTES)
        if not any(reader().claims(path, head) for reader in (NcclTests, NcclTestsJson)):
            whole_json(path, head)
            raise Refused(f"is no {NcclTests.accepts}, nor its JSON (-J)")
    except Refused as error:
        raise located(error, path.name, {}) from None


def _other_device(found: Findings, setup: Setup) -> list[str]:
    """That the file names another accelerator than the machine's."""
    own = setup.machine.device.name
    if not found.device or same_kind(found.device, own):
        return []
    return [f"the file names {found.device}, and {setup.machine.name} has {own}"]


def _full_nodes(curves: Sequence[Curve], setup: Setup) -> Iterator[str]:
    """How many nodes are taken where the file does not say."""
    for ranks in sorted({c.ranks for c in curves if c.ranks and c.nodes is None}):
        nodes = -(-ranks // setup.per_node)
        yield (
            f"{ranks} ranks are taken to be on {nodes} node{'s' * (nodes > 1)}, as few as hold "
            "them; say --nodes where they were on more"
        )


def _pooled(curves: Sequence[Curve]) -> list[Curve]:
    """One curve per operation and group: repetitions count with their median, size by size."""
    groups: dict[tuple[str | None, int | None, int | None], list[Curve]] = {}
    for curve in curves:
        groups.setdefault((curve.operation, curve.ranks, curve.nodes), []).append(curve)
    return [
        replace(same[0], points=merged(point for curve in same for point in curve.points))
        for same in groups.values()
    ]


def _checked(name: str, curve: Curve, setup: Setup) -> CheckedTable:
    if curve.operation is None:
        raise Refused(f"{name}: does not say which operation it is; say --operation")
    if curve.ranks is None:
        why = curve.doubt or "does not say how many ranks there are"
        raise Refused(f"{name}: {why}; say --ranks, and --nodes")
    nodes = curve.nodes or -(-curve.ranks // setup.per_node)
    sizes = [size for size, _, _ in curve.points]
    expected = setup.group(curve.operation, curve.ranks, nodes, sizes)
    lines = tuple(
        replace(line, measured=seconds)
        for line, (_, seconds, _) in zip(expected.lines, curve.points, strict=True)
    )
    group = replace(expected, lines=lines)
    judged = bands((measured_size(line) for line in lines), group.kind)
    bad = [band for band in judged if band.verdict == "low"]
    low = [line for band in bad for line in _lone(group, band) or _lines(group, [band])]
    causes = explained(setup, group, low) if low else []
    return CheckedTable(curve.operation, group, judged, tuple(causes))


def _lines(group: RankGroup, some: Sequence[Band]) -> list[Line]:
    """The lines of `group` whose sizes are in `some` bands."""
    names = {band.name for band in some}
    return [line for line in group.lines if band_of(line.size) in names]


def _lone(group: RankGroup, band: Band) -> list[Line]:
    """The lines of `band` that are low by themselves, where their median is not."""
    if band.ratio > sensitivity(group.kind).low:
        return []
    return [line for line in _lines(group, [band]) if line.size in band.low_sizes]


def measured_size(line: Line) -> MeasuredSize:
    """A measured line as the rule takes it."""
    assert line.measured is not None
    return MeasuredSize(line.size, line.measured, line.seconds, line.low, line.high)


def _document(table: CheckedTable) -> dict[str, Any]:
    return {
        "operation": table.operation,
        "ranks": table.group.ranks,
        "nodes": table.group.nodes,
        "kind": table.group.kind,
        "verdict": table.verdict,
        "bands": [band._asdict() for band in table.bands],
        "sensitivity": table.sensitivity._asdict() if table.sensitivity else None,
        "causes": [
            {
                "name": cause.fault.name,
                "meaning": cause.fault.meaning,
                "misfit": cause.misfit,
                "misfit_of_low": cause.misfit_of_low,
                "likeliest": cause.alike,
                "next": list(cause.fault.next),
            }
            for cause in table.causes
        ],
        "lines": [line.document() for line in table.group.lines],
    }


def next_steps(tables: Sequence[CheckedTable]) -> list[str]:
    """What to run next, without repetitions: for the likeliest causes, else for the verdict."""
    steps: list[str] = []
    for table in tables:
        likely = [step for cause in table.causes if cause.alike for step in cause.fault.next]
        if table.verdict == "suspicious":
            steps += OTHER_MACHINE
        elif table.verdict in ("low", "cannot_tell"):
            steps += likely or UNKNOWN
    return list(dict.fromkeys(steps))


__all__ = ["CheckedFile", "CheckedTable", "check", "measured_size", "next_steps"]
