"""A comparison in one call: what `dpsim compare` does, without a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from dpsim.cases.site import MOST_RANKS
from dpsim.core import told
from dpsim.core.presented import Presented
from dpsim.core.record import Refused
from dpsim.core.refusals import brief, texts, whole
from dpsim.describe.jobs import Mix, MixedJob, mix_of
from dpsim.describe.scenario import Given, Loaded, Scenario, taken
from dpsim.describe.written import plain_data
from dpsim.planning import candidates, compared, measure_next
from dpsim.planning.candidates import Asked
from dpsim.planning.compare import DRAWN, DRAWS, UNITS, By, Comparison, comparison
from dpsim.planning.grid import Axes

#: what is compared: files, bundled names, folders, and whatever else says a scenario
Several = Sequence[Given] | Mapping[str, Given]


@dataclass(frozen=True)
class Compared(Presented):
    """Candidates side by side, how surely which is best, and what to measure before choosing."""

    comparison: Comparison

    def __repr__(self) -> str:
        count, best = len(self.comparison.candidates), self.recommendation
        return f"Compared({count:,} candidates, take {brief(best) if best else 'none'})"

    @cached_property
    def document(self) -> dict[str, Any]:
        """All of it as ``dpsim compare --json`` prints it."""
        worth = measure_next.document(self.comparison)
        first = next(iter(worth), None)
        return {**compared.document(self.comparison), "measurements": worth, "measure_next": first}

    @property
    def recommendation(self) -> str | None:
        """The name of the candidate to take; None where none can be."""
        best = self.comparison.chosen
        return None if best is None else self.comparison.candidates[best].name

    @property
    def usable(self) -> bool:
        """Whether all candidates can be chosen."""
        return all(candidate.usable for candidate in self.comparison.candidates)


def compare(
    scenarios: Several | str | Path,
    *,
    sets: Sequence[str] = (),
    vary: Axes = (),
    by: str | None = None,
    ranks: int | None = None,
    seed: int = 0,
    draws: int = DRAWS,
    tell: told.Told = told.nobody,
) -> Compared:
    """Compare `scenarios`: step, memory, days, money and energy of each, and which is best.

    scenarios  files, bundled names, folders, dicts or records; or names with such
    sets       KEY=VALUE texts that change all files
    vary       a candidate for each value: ``{"strategy.kind": ["ddp", "fsdp"]}`` or texts
    by         cost, time or energy; None: cost where all have prices, time otherwise
    ranks      where they are compared; None: at the last point of each
    seed, draws  of what is not known, 100 to 1,000,000 times
    tell       is told how many candidates are played

    Raises Refused where they do not do the same work, or where one is not right.
    """
    if by is not None and by not in UNITS:
        raise Refused(f"--by {by}: is none of {', '.join(UNITS)}")
    _check(scenarios)
    texts("sets", sets)
    seed, draws = whole("--seed", seed, 0), whole("--draws", draws, *DRAWN)
    ranks = None if ranks is None else whole("--ranks", ranks, 1, MOST_RANKS)
    wanted = _asked(scenarios, sets, vary)
    found = [candidates.played(each, ranks) for each in told.counted(wanted, tell)]
    return Compared(comparison(found, by=cast("By | None", by), seed=seed, draws=draws))


def _check(scenarios: Any) -> None:
    """Refuse one scenario, whose keys would be taken for the names of several."""
    one = isinstance(scenarios, Mapping) and not {"model", "cluster", "jobs"}.isdisjoint(scenarios)
    if one or not isinstance(scenarios, str | Path | Mapping | Sequence):
        raise Refused(
            f"a {type(scenarios).__name__} is one scenario; accepted: several, as [first, second] "
            "or {'a name': first, 'another': second}, a folder, or one scenario with vary"
            if one or isinstance(scenarios, Loaded | Scenario)
            else f"a {type(scenarios).__name__} is no scenarios; accepted: a list of them, a dict "
            "of them by name, or a folder"
        )


def _asked(scenarios: Several | str | Path, sets: Sequence[str], vary: Axes) -> list[Asked]:
    """The candidates, varied."""
    if isinstance(scenarios, str | Path):
        return candidates.asked([scenarios], sets, vary)
    if isinstance(scenarios, Mapping):
        mixes = {str(name): _mix(str(name), given) for name, given in scenarios.items()}
        return candidates.varied(list(mixes.values()), list(mixes), vary)
    if all(isinstance(given, str | Path) for given in scenarios):
        return candidates.asked(cast("Sequence[str | Path]", scenarios), sets, vary)
    names = [f"candidate {number}" for number in range(1, len(scenarios) + 1)]
    mixes = {name: _mix(name, given) for name, given in zip(names, scenarios, strict=True)}
    return candidates.varied(list(mixes.values()), names, vary)


def _mix(name: str, given: Given) -> Mix:
    """The job, or the jobs, that `given` says."""
    if isinstance(given, Mapping):
        return mix_of(plain_data(given), Path(), name)
    loaded = taken(given)
    return Mix(name, loaded.name, (MixedJob(loaded.name, 1.0, loaded),), False)
