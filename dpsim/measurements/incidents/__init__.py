"""What interrupted real jobs: rates with intervals, as `failures:` takes them.

Three kinds of file: a table of incidents (CSV with `time` and `cause`), what Slurm's
`sacct --parsable2` prints, and the log of ml-goodput-measurement (AI-Hypercomputer, v0.0.10,
goodput.py: dictionaries with `job_start_time`, `step_start_time`, …), one JSON object a line or one
list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpsim.core.files import Unreadable, read_text
from dpsim.core.record import Refused
from dpsim.core.yamlfile import FileRefused
from dpsim.measurements.incidents import goodput_log, sacct, table
from dpsim.measurements.incidents.counted import CountedRate, Exposure, Seen

MOST_BYTES = 200_000_000


@dataclass(frozen=True)
class Incidents:
    """What a file tells.

    kind   table, sacct or goodput_log
    over   for which time it was looked at [s]
    rates  by cause
    """

    kind: str
    over: float
    rates: tuple[CountedRate, ...]
    seen: Seen

    @property
    def sections(self) -> dict[str, Any]:
        """Sections of a scenario that say the same."""
        failures: dict[str, Any] = {}
        for rate in self.rates:
            failures |= rate.section
        found: dict[str, Any] = {"failures": failures} if failures else {}
        return found | self.seen.sections

    def document(self) -> dict[str, Any]:
        """As `dpsim incidents --json` prints it."""
        return {
            "kind": self.kind,
            "over_s": self.over,
            "rates": [rate.document() for rate in self.rates],
            "measured": self.seen.measured,
            "sections": self.sections,
            "notes": list(self.seen.notes),
        }


def read(path: Path, observed: Exposure) -> Incidents:
    """What the file at `path` tells of jobs that were `observed` so.  Raises FileRefused where it
    is none of the three kinds, or does not say enough."""
    try:
        text = read_text(path, MOST_BYTES)
    except Unreadable as error:
        raise FileRefused(error.message, shown=path.name, line=error.line) from None
    kind, reader = _reader(text)
    try:
        over, rates, seen = reader(text, path.name, observed)
    except FileRefused:
        raise
    except Refused as error:
        raise FileRefused(error.message, error.path, shown=path.name) from None
    return Incidents(kind, over, _in_order(rates), seen)


def _reader(text: str) -> Any:
    """What reads such a text, and what it is called."""
    begin = text.lstrip()[:1]
    if begin in ("{", "["):
        return "goodput_log", goodput_log.read
    return ("sacct", sacct.read) if "|" in text.partition("\n")[0] else ("table", table.read)


def _in_order(rates: Sequence[CountedRate]) -> tuple[CountedRate, ...]:
    return tuple(sorted(rates, key=lambda rate: -rate.count))
