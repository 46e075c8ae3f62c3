"""Text of `dpsim check`: measured and expected steps, the verdict, likely faults, what to run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsim.checks.hypotheses import MEANINGS
from dpsim.core.units import show
from dpsim.report.bundle import Bundle, write_bundle
from dpsim.report.table import Columns, say, table
from dpsim.report.text import clean

if TYPE_CHECKING:
    from rich.console import Console

    from dpsim.checks.steps import LikelyCause, StepCheck

SAID = {
    "normal": "Normal: steps are as long as this cluster's should be.",
    "slow": "Slow: a fault is likelier than a healthy cluster.",
    "cannot_tell": "Cannot tell: a healthy cluster and one with a fault explain these steps alike.",
}
STYLES = {"normal": "green", "slow": "red", "cannot_tell": "yellow"}
FASTER = "Cannot tell: steps are faster than this scenario explains; another one was measured."
SOME_FASTER = "Some steps are faster than expected: is the scenario what was measured?"
ONLY_FASTER = (
    "Steps are faster than expected, and no fault makes them so: another dtype, batch, model or "
    "recomputation may have been measured, or a slow step may have calibrated the scenario."
)
#: what the interval of a check is of, beside that of a run
HEALTHY = (
    "healthy 90 %: steps without a fault, of this and other runs.  The interval of dpsim run is of "
    "this run's step, with what a loader may add of which nothing is said."
)
#: faults less likely than this are not listed
LISTED = 0.02
#: what `dpsim check -o` and `dpsim check-nccl -o` write
FILES = ("check.json", "index.html")


def print_step_check(
    found: StepCheck, commands: Sequence[str], console: Console, files: str = ""
) -> None:
    """All that `found` says."""
    console.print(table(*step_columns(found)))
    say(console, [HEALTHY])
    causes = listed(found)
    if causes:
        say(console, [f"Probability of a fault: {found.probability:.0%}.  Likeliest:"], "bold")
        lines = (f"  {c.probability:>4.0%}  {c.name}: {MEANINGS[c.name]}" for c in causes)
        say(console, list(lines))
    if found.too_fast:
        say(console, [ONLY_FASTER if found.only_faster else SOME_FASTER], "yellow")
    if commands:
        say(console, ["Run next:"], "bold")
        say(console, [f"  - {clean(command)}" for command in commands])
    say(console, [said(found)], STYLES[found.verdict])
    say(console, [files] if files else [])


def listed(found: StepCheck) -> list[LikelyCause]:
    """The faults to tell of: none where steps are normal, or only faster than healthy ones."""
    if found.verdict == "normal" or found.only_faster:
        return []
    return [cause for cause in found.causes if cause.probability >= LISTED]


def said(found: StepCheck) -> str:
    """The verdict in a sentence."""
    return FASTER if found.verdict == "cannot_tell" and found.too_fast else SAID[found.verdict]


def step_columns(found: StepCheck) -> Columns:
    """Measured steps beside healthy ones."""
    heads = ("ranks", "global batch", "measured", "healthy", "healthy 90 %", "ratio")
    rows = [
        (
            f"{seen.case.ranks:,}", f"{seen.case.global_batch:,}", show(seen.seconds, "s"),
            show(middle, "s"), f"{show(low, 's')} … {show(high, 's')}",
            f"{seen.seconds / middle:.2f}",
        )
        for seen, (middle, low, high) in zip(found.observed, found.expected, strict=True)
    ]  # fmt: skip
    return heads, rows


def write_check(document: Any, html: str, out: Path) -> None:
    """Write `FILES` into folder `out`: the answer, and its page."""

    def fill(bundle: Bundle) -> None:
        bundle.json(FILES[0], document)
        bundle.text(FILES[1], html)

    write_bundle(out, fill)
