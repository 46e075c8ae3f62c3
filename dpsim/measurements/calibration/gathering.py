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
from dpsim.core.record import Refused
from dpsim.measurements.calibration.fitting import calibration_of
from dpsim.measurements.findings import Findings
from dpsim.measurements.readers import MAX_BYTES, read_any


@dataclasses.dataclass(frozen=True)
class Gathered:
    """What was found in each file, and the calibration made of it."""

    found: tuple[Findings, ...]
    calibration: Calibration

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
