"""What `dpsim calibrate` does: read the files, fit, and save the result whole or not at all."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpsim._version import __version__
from dpsim.backends.curves import MeasuredCurve
from dpsim.backends.curves.file import Calibration, Source, write
from dpsim.core import told
from dpsim.core.files import read_bytes
from dpsim.core.outputs import marked, write_files
from dpsim.core.presented import Presented
from dpsim.core.record import Refused
from dpsim.core.refusals import brief
from dpsim.core.units import parse
from dpsim.measurements.calibration.fitting import calibration_of
from dpsim.measurements.findings import Findings
from dpsim.measurements.readers import MAX_BYTES, read_any


@dataclasses.dataclass(frozen=True)
class Gathered(Presented):
    """What was found in each file, and the calibration made of it."""

    found: tuple[Findings, ...]
    calibration: Calibration

    def __repr__(self) -> str:
        count = len(self.found)
        return f"Gathered({brief(self.calibration.title)}: {count:,} file{'s' * (count != 1)})"

    def document(self) -> dict[str, Any]:
        """Everything as plain data, in SI units."""
        files = [
            {"file": f.source, "understood": list(f.notes), "warnings": list(f.warnings)}
            for f in self.found
        ]
        return {
            "schema_version": 1,
            "dpsim_version": __version__,
            "files": files,
            "buckets": [dataclasses.asdict(b) for f in self.found for b in f.buckets],
            "calibration": dataclasses.asdict(self.calibration),
        }


def calibrate(
    files: str | Path | Sequence[str | Path],
    *,
    title: str = "",
    operation: str | None = None,
    ranks: int | None = None,
    nodes: int | None = None,
    link_rate: str | None = None,
    out: str | Path | None = None,
    tell: told.Told = told.nobody,
) -> Gathered:
    """What measurements say: nccl-tests text, Kineto traces, tables of step times.

    title      of the calibration
    operation, ranks, nodes  what the files do not say
    link_rate  of one NIC, as "100 Gbit/s"
    out        where the calibration file goes, which scenarios use with `calibration: FILE`
    tell       is told how many files are read

    Raises Refused for a file that is no measurement, contradicts another, or is given twice.
    """
    try:
        rate = None if link_rate is None else parse(link_rate, "B/s")
    except ValueError as error:
        raise Refused(f"--link-rate: {error}") from None
    paths = [files] if isinstance(files, str | Path) else files
    gathered = gather(
        [Path(path) for path in paths], title,
        operation=operation, ranks=ranks, nodes=nodes, link_rate=rate, tell=tell,
    )  # fmt: skip
    if out is not None:
        save(gathered.calibration, Path(out))
    return gathered


def gather(
    files: Sequence[Path],
    title: str = "",
    *,
    operation: str | None = None,
    ranks: int | None = None,
    nodes: int | None = None,
    link_rate: float | None = None,
    tell: told.Told = told.nobody,
) -> Gathered:
    """Read `files`; what they don't say is `operation`, `ranks`, `nodes` and `link_rate`, the rate
    of one NIC [B/s], which curves of several nodes then know.  `tell` is told how many are read.

    Raises Refused for a file that is no measurement, contradicts another, or is given twice.
    """
    found: list[Findings] = []
    sources: list[Source] = []
    for path in told.counted(files, tell):
        findings = read_any(path).told(operation, ranks, nodes)
        digest = hashlib.sha256(read_bytes(path, MAX_BYTES)).hexdigest()
        source = Source(file=path.name, sha256=digest)
        if source.sha256 in (known.sha256 for known in sources):
            raise Refused(f"{path.name} is given twice")
        found.append(findings)
        sources.append(source)
    made = calibration_of(found, sources, title)
    if link_rate is not None:
        known = (_linked(curve, link_rate) for curve in made.curves)
        made = dataclasses.replace(made, curves=tuple(known))
    return Gathered(tuple(found), made)


def _linked(curve: MeasuredCurve, rate: float) -> MeasuredCurve:
    """`curve` with the rate of its link, where it crosses one between nodes."""
    across = curve.nodes is None or curve.nodes > 1
    return dataclasses.replace(curve, link_rate=rate) if across else curve


def save(calibration: Calibration, out: Path) -> None:
    """Write the calibration file; it is never there half-written."""
    write_files({out: marked("calibrate", write(calibration)).encode()})
