"""Counts of incidents: the rate that they are evidence of, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from dpsim.core.poisson import interval
from dpsim.core.units import show

#: counts below which an interval is so wide that the rate is hardly known
THIN = 5
#: 2100-01-01 in seconds since 1970
_LATEST = datetime(2100, 1, 1, tzinfo=UTC).timestamp()


@dataclass(frozen=True)
class Exposure:
    """What a file does not say of what it saw: for how long, and how many there were."""

    over: float | None = None
    nodes: int | None = None
    devices: int | None = None


@dataclass(frozen=True)
class Seen:
    """What else a file says.

    measured  numbers by name
    sections  sections of a scenario
    """

    measured: dict[str, float] = field(default_factory=dict)
    sections: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class CountedRate:
    """How often something happened.

    of        what the exposure is of: a device, a node, or the job
    exposure  seconds that all of these were at work, together
    section   keys of `failures:` that say the same; none where there are too few to say it
    """

    cause: str
    count: int
    of: str
    exposure: float
    section: dict[str, Any] = field(default_factory=dict)

    @property
    def mtbf(self) -> float | None:
        """Mean time between failures of one [s]; None where there was none."""
        return self.exposure / self.count if self.count else None

    @property
    def ends(self) -> tuple[float, float | None]:
        """The 90 % interval of `mtbf` [s], without an upper end where nothing happened."""
        low, high = interval(self.count)
        return self.exposure / high, self.exposure / low if low else None

    @property
    def thin(self) -> bool:
        """Whether there were too few to know the rate well."""
        return self.count < THIN

    def document(self) -> dict[str, Any]:
        low, high = self.ends
        return {
            "cause": self.cause, "count": self.count, "of": self.of, "exposure_s": self.exposure,
            "mtbf_s": self.mtbf, "mtbf_low_s": low, "mtbf_high_s": high, "thin": self.thin,
        }  # fmt: skip


def moment(text: str) -> float:
    """Seconds since 1970 of an ISO 8601 time or of a number of seconds; ValueError otherwise,
    and for times before 1970 or after 2099, which are slips."""
    try:
        found = float(text)
    except ValueError:
        try:
            read = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
        except ValueError:
            wanted = "write 2026-03-01T12:30:00, or seconds"
            raise ValueError(f"{text[:40]!r} is no time; {wanted}") from None
        found = (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    if not 0.0 <= found < _LATEST:  # nor where it is no number
        raise ValueError(f"{text[:40]!r} is not in the years 1970 to 2099")
    return found


def span(seconds: float) -> str:
    """A time as scenarios write it."""
    return show(seconds, "s", 6)
