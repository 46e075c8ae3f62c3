"""Text of `dpsim check-nccl`: ranges of sizes with their verdicts, why, likely causes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpsim.checks.diagnosis import LARGE, MARGIN
from dpsim.core.units import show
from dpsim.report.collective import WORDS, size_text
from dpsim.report.table import Columns, put, say
from dpsim.report.text import clean

if TYPE_CHECKING:
    from rich.console import Console

    from dpsim.checks.check_nccl import CheckedFile, CheckedTable
    from dpsim.checks.diagnosis import Band
    from dpsim.predict.collective import Line

SAID = {
    "normal": "times lie where this cluster's should",
    "low": "slower than this cluster should be",
    "cannot_tell": "slower than 19 of 20 healthy machines of the kind, though not than 99 of 100",
    "suspicious": "faster than this cluster can be; another one was measured, or more is wired "
    "than its machine file says",
}
STYLES = {"normal": "green", "low": "red", "suspicious": "yellow", "cannot_tell": "yellow"}
#: what the columns `slower` and `faster` of a judged table are
OUTSIDE = (
    "slower, faster: rows beyond their 90 % interval by more than a fifth; where 9 of 10 are, a "
    "range is low or suspicious."
)
#: share of slower rows from which on a range that is normal is told all the same [1]
MANY = 0.5
#: how many rows that are low by themselves are named
NAMED = 5


def print_check(
    check: CheckedFile, steps: Sequence[str], console: Console, files: str = ""
) -> None:
    """The verdict, why, what may be the cause, and what to run next."""
    for found in check.tables:
        _print_table(check, found, console)
    if steps:
        say(console, ["Run next:"], "bold")
        say(console, [f"  - {clean(step)}" for step in steps])
    say(console, [f"Warning: {clean(text)}" for text in check.warnings], "yellow")
    say(console, [said_of(check)], STYLES[check.verdict])
    say(console, [files] if files else [])


def said_of(check: CheckedFile) -> str:
    """The verdict in a line, and of which sizes it is where others have another."""
    wrong = "1 row has" if check.wrong == 1 else f"{check.wrong} rows have"
    if check.wrong and check.verdict == "suspicious":
        return f"suspicious: {wrong} wrong results"
    slow = [band.name for one in check.tables for band in _mostly_slower(one)]
    why = SAID[check.verdict]
    if slow and check.verdict == "normal":
        why = f"fewer than 9 rows of 10 are slower, though most of {', '.join(slow)} are"
    said = f"{_words(check.verdict)}{_where(check)}: {why}"
    if lone := [_lone_told(one) for one in check.tables if one.lone]:
        said += f"{': ' if check.verdict == 'low' else ', but '}{'; '.join(lone)}"
    return f"{said}; and {wrong} wrong results" if check.wrong else said


def _lone_told(found: CheckedTable) -> str:
    """Which large rows are low by themselves, the slowest first, where their median is not."""
    rows = sorted(found.lone, key=lambda line: line.seconds / (line.measured or 0.0))
    sizes = [f"{size_text(row.size)} ({_rates(row)})" for row in rows[:NAMED]]
    sizes += [f"{len(rows) - NAMED} more"] * (len(rows) > NAMED)
    are = "is low by itself" if len(rows) == 1 else "are low by themselves"
    of = found.plateau.rows if found.plateau else 0
    return f"{len(rows)} of {of} rows of {LARGE} {are}: {', '.join(sizes)}"


def _rates(line: Line) -> str:
    """Measured and expected bus bandwidth of a row, in short."""
    assert line.measured is not None
    rate = line.busbw * line.seconds / line.measured / 1e9
    return f"{rate:,.4g} of {line.busbw / 1e9:,.4g} GB/s"


def _words(verdict: str) -> str:
    """A verdict as a sentence has it."""
    return verdict.replace("_", " ")


def _where(check: CheckedFile) -> str:
    """Of which sizes, of which tables, the verdict of the file is, in brackets; nothing of all."""
    if all(band.verdict == check.verdict for one in check.tables for band in one.bands):
        return ""
    found = []
    for one in check.tables:
        names = ", ".join(band.name for band in one.bands if band.verdict == check.verdict)
        of = f"{one.operation} on {one.group.ranks} ranks: " if len(check.tables) > 1 else ""
        found += [of + names] if names else []
    return f" ({'; '.join(found)})"


def _print_table(check: CheckedFile, found: CheckedTable, console: Console) -> None:
    group = found.group
    title = (
        f"{clean(check.source)}: {found.operation}, {group.ranks} ranks on {group.nodes} "
        f"node{'s' * (group.nodes > 1)} of {clean(check.setup.machine.name)} ({group.kind})"
    )
    say(console, [title], "bold")
    put(console, band_columns(found), WORDS)
    say(console, [*judged_told(found), *causes_told(found)])


def band_columns(found: CheckedTable) -> Columns:
    """The verdict of every range of sizes, with shares of rows where these make it."""
    heads = ("sizes", "rows", "measured/expected", "slower", "faster", "verdict")
    rows = []
    for band in found.bands:
        shares = [f"{share:.0%}" for share in (band.slower, band.faster)]
        beside = ["", ""] if band is found.plateau else shares
        rows.append((band.name, str(band.rows), f"{band.ratio:.2f}", *beside, band.verdict))
    return heads, rows


def judged_told(found: CheckedTable) -> list[str]:
    """Why the table is judged as it is: the range of sizes that decides, and the large ones."""
    large, decides = found.plateau, found.deciding
    ranges = [band for band in found.bands if band is not large]
    lines = [OUTSIDE] if ranges else []
    lines += [_range_told(found, decides)] if decides is not large else []
    lines += [
        f"{band.name} is not called low, though {band.slower:.0%} of its rows are slower."
        for band in _mostly_slower(found)
        if band is not decides
    ]
    return [*lines, *(_large_told(found, large) if large else [])]


def _mostly_slower(found: CheckedTable) -> list[Band]:
    """Ranges below 64 MiB that are normal, though most of their rows are slower."""
    below = (band for band in found.bands if band is not found.plateau)
    return [band for band in below if band.verdict == "normal" and band.slower > MANY]


def _range_told(found: CheckedTable, band: Band) -> str:
    """A range below 64 MiB: how many of its rows lie beyond their intervals, and the median one."""
    row, fast = found.middle(band), band.verdict == "suspicious"
    share, how = (band.faster, "faster") if fast else (band.slower, "slower")
    ends = (row.busbw * row.seconds / end / 1e9 for end in (row.high, row.low))
    return (
        f"{band.name}, {_words(band.verdict)}: {share:.0%} of its rows are {how} than their 90 % "
        f"interval by more than a fifth.  The {_which(band)} row, {_measured(row)} "
        f"({' … '.join(f'{end:,.4g}' for end in ends)}); {_times(row)}."
    )


def _large_told(found: CheckedTable, band: Band) -> list[str]:
    """Sizes from 64 MiB up: the median row, and down to which bandwidth it would be normal, for
    healthy machines differ."""
    seen, row = found.sensitivity, found.middle(band)
    assert seen is not None
    known = f"{seen.machines or 'no'} published machine{'s' * (seen.machines != 1)}"
    fast = f", below {seen.suspicious:.2f} times suspicious" * (band.verdict == "suspicious")
    kind, which = clean(found.group.kind), _which(band)
    some = ", for some rows are" * (band.verdict == "low" and bool(found.lone))
    normal, low = (f"{row.busbw / end / 1e9:,.4g}" for end in (seen.doubtful, seen.low))
    lines = [
        f"{band.name}, {_words(band.verdict)}{some}: the {which} row takes {band.ratio:.2f} times "
        f"the expected time; over {kind} up to {seen.doubtful:.2f} times is normal, more than "
        f"{seen.low:.2f} times low{fast}, for healthy machines differ that much (known: {known}).  "
        "Compare with your own nodes to see smaller losses.",
        f"The {which} row, {_measured(row)}, normal down to {normal}, low below {low}; "
        f"{_times(row)}.",
    ]
    if found.lone:
        lines.append(
            f"{_lone_told(found)}.  All are low where a fifth of the rows, or the largest, are "
            f"slower than {seen.low * MARGIN:.2f} times."
        )
    last = max(found.group.lines, key=lambda line: line.size)
    if (alone := found.alone(last)) != band.verdict:
        lines.append(f"The largest size, {_measured(last)}; by itself it is {_words(alone)}.")
    return lines


def _which(band: Band) -> str:
    """The row that stands for `band`."""
    return "median" if band.rows > 1 else "only"


def _measured(line: Line) -> str:
    """The bus bandwidth of a row beside what is expected."""
    assert line.measured is not None
    rate = line.busbw * line.seconds / line.measured / 1e9
    expected = f"{line.busbw / 1e9:,.4g} expected"
    return f"{size_text(line.size)}: {rate:,.4g} GB/s of bus bandwidth measured, {expected}"


def _times(line: Line) -> str:
    assert line.measured is not None
    return f"{show(line.measured, 's')} instead of {show(line.seconds, 's')}"


def causes_told(found: CheckedTable) -> list[str]:
    """Which faults fit times that are low; nothing where they are not."""
    if found.verdict != "low":
        return []
    some = any(band.verdict != "low" for band in found.bands)
    if not found.causes:
        what = "the low times, and all of them," if some else "these times"
        return [
            f"None of the faults that dpsim can predict fits {what} better than no fault: "
            "look for other jobs on the network, throttled GPUs, or links at a lower rate."
        ]
    lines = ["Likely causes, by how well the same cluster with the fault fits the times:"]
    for cause in found.causes:
        mark = "likeliest" if cause.alike else "less likely"
        factor = f"{'all ' * some}times differ by a factor of {math.exp(cause.misfit):.2f}"
        factor += f", the low ones by {math.exp(cause.misfit_of_low):.2f}" * some
        lines.append(f"  - {mark}: {clean(cause.fault.meaning)} ({factor})")
    return lines
