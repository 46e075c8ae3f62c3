"""Text of `dpsim check`: measured and expected steps, the verdict, likely faults, what to run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsim.checks.hypotheses import MEANINGS
from dpsim.checks.next_commands import of_tuned_code
from dpsim.core.units import show
from dpsim.predict.repeats import AGREE
from dpsim.predict.unmeasured import UNTUNED
from dpsim.report.bundle import Bundle, write_bundle
from dpsim.report.table import Columns, put, say
from dpsim.report.text import clean, ranks

if TYPE_CHECKING:
    from rich.console import Console

    from dpsim.checks.steps import LikelyCause, Observed, StepCheck

SAID = {
    "normal": "Normal: steps are as long as this cluster's should be.",
    "slow": "Slow: a fault is likelier than a healthy cluster.",
    "cannot_tell": "Cannot tell: these steps show neither a healthy cluster nor one with a fault.",
}
STYLES = {"normal": "green", "slow": "red", "cannot_tell": "yellow"}
FASTER = "Cannot tell: steps are faster than this scenario explains; is it what was measured?"
NORMAL_FASTER = (
    "Normal: nothing speaks for a fault, but there are steps faster than most healthy ones."
)
NORMAL_SLOWER = "Normal: nothing speaks for a fault, but one repeat is slow."
SOME_FASTER = "Some steps are faster than expected: is the scenario what was measured?"
MEANT = (
    "No fault makes steps faster: another batch, precision, model or recomputation may have been "
    "measured"
)
#: what the interval of a check is of, beside that of a run
HEALTHY = (
    "healthy 90 %: where 9 of 10 steps without a fault lie, of this and other runs.  The interval "
    "of dpsim run is of this run alone, and has what a loader may add where none is stated."
)
#: faults less likely than this are not listed
LISTED = 0.02
#: how many slow steps the last line names
NAMED = 5
#: what `dpsim check -o` and `dpsim check-nccl -o` write
FILES = ("check.json", "index.html")


def print_step_check(
    found: StepCheck, commands: Sequence[str], console: Console, files: str = ""
) -> None:
    """All that `found` says."""
    put(console, step_columns(found))
    say(console, [HEALTHY, *untuned(found)])
    causes = listed(found)
    if causes:
        say(console, [f"Probability of a fault: {found.probability:.0%}.  Likeliest:"], "bold")
        lines = (f"  {c.probability:>4.0%}  {c.name}: {MEANINGS[c.name]}" for c in causes)
        say(console, list(lines))
    say(console, [*faster(found), *differing(found)], "yellow")
    if commands:
        say(console, ["Run next:"], "bold")
        say(console, [f"  - {clean(command)}" for command in commands])
    say(console, [said(found)], STYLES[found.verdict])
    say(console, [files] if files else [])


def untuned(found: StepCheck) -> list[str]:
    """That steps which look slow may be those of code that nobody tuned."""
    return [UNTUNED] if found.verdict == "slow" and of_tuned_code(found) else []


def listed(found: StepCheck) -> list[LikelyCause]:
    """The faults to tell of: none where steps are normal, or only faster than healthy ones."""
    if found.verdict == "normal" or found.only_faster:
        return []
    return [cause for cause in found.causes if cause.probability >= LISTED]


def faster(found: StepCheck) -> list[str]:
    """Which steps are faster than a healthy cluster's, and what that may mean."""
    if not found.below:
        return []
    calibrated = found.observed[0].case.scenario.calibrate is not None
    meant = MEANT + (", or a slow step may have calibrated the scenario." if calibrated else ".")
    if found.too_fast:
        return [f"Steps are faster than expected.  {meant}" if found.only_faster else SOME_FASTER]
    told = dict.fromkeys(
        f"{_step(seen)} ({show(low, 's')} or more)"
        for seen, (_, low, _) in zip(found.observed, found.expected, strict=True)
        if seen.seconds < low
    )
    return [f"Faster than 19 of 20 healthy steps: {', '.join(told)}.  {meant}"]


def differing(found: StepCheck) -> list[str]:
    """Which repeats differ by more than repeats do, and how they are judged."""
    told = [
        f"{show(fast.seconds, 's')} and {_step(slow)} ({slow.seconds / fast.seconds:.2f} times)"
        for fast, slow in found.differing
    ]
    if not told:
        return []
    return [
        f"Repeats differ by more than {AGREE:g} times, as those of one run hardly do: "
        f"{', '.join(told)}.  The slowest counts; something comes and goes, or these are not the "
        "same run."
    ]


def said(found: StepCheck) -> str:
    """The verdict in a sentence, with the steps that it does not fit."""
    told = SAID[found.verdict]
    if found.verdict == "cannot_tell" and found.too_fast:
        told = FASTER
    elif found.verdict == "normal" and (found.below or found.above):
        told = NORMAL_FASTER if found.below else NORMAL_SLOWER
    if found.differing:
        told += "  Repeats of a step differ by more than repeats do."
    if found.above and (found.verdict != "slow" or found.differing):
        steps = list(dict.fromkeys(map(_step, found.above)))
        more = [f"{len(steps) - NAMED} more"] * (len(steps) > NAMED)
        told += f"  Slower than 19 of 20 healthy steps: {', '.join([*steps[:NAMED], *more])}."
    if found.findings:
        told += (
            f"  The steps that calibrate show a fault themselves ({', '.join(found.findings)}), "
            "and what is called healthy here has it, too."
        )
    return told


def _step(seen: Observed) -> str:
    return f"{show(seen.seconds, 's')} on {ranks(seen.case.ranks)}"


def step_columns(found: StepCheck) -> Columns:
    """Measured steps beside healthy ones."""
    heads = ("ranks", "global batch", "measured", "healthy", "healthy 90 %", "measured/healthy")
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
