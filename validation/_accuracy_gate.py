"""The accuracy gate: predictions of published rows may become better, and not worse unnoticed.

`accuracy.json` keeps, beside the figures, what is accepted: the smallest median error that each
group of rows has had in this revision.  A result is refused where a median error is more than 5 %
(all rows of a table) or 10 % (a regime of at least 10 rows) above what is accepted, where fewer
rows are scored, where a row that was predicted is not any more, and where the tables are others.
A new revision starts from new figures; it needs an entry under "Changed predictions" in
CHANGELOG.md: "`accuracy` revision N" and the reason.

All functions are pure: figures and texts in, findings (sentences) or a new document out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

SCHEMA_VERSION = 1
KINDS = ("training", "collectives")
#: how far a median error may lie above the accepted one, as a share of it: of a whole table, and
#: of a regime, whose fewer rows move more
RISE, RISE_OF_REGIME = 0.05, 0.10
#: regimes of fewer rows say too little
ENOUGH = 10
#: figures that differ by less, as a share, are the same: what another processor may round
#: differently
SAME = 1e-6
#: findings of one kind that are printed
SHOWN = 8

Accepted = dict[str, dict[str, float]]


class Broken(Exception):
    """`accuracy.json` cannot be trusted; the message says why."""


class Stopped(Exception):
    """New figures are not written; `findings` say why."""

    def __init__(self, *findings: str) -> None:
        super().__init__("; ".join(findings))
        self.findings = list(findings)


@dataclass(frozen=True)
class Kept:
    """What `accuracy.json` holds.

    accepted   per group of rows: the number of rows `n` and the smallest `median_error` accepted
    figures    what the program said when the file was written; see `Now`
    predicted  names of the rows that had a prediction then
    tables     SHA-256 of the tables
    """

    revision: int
    because: str
    versions: dict[str, str]
    tables: dict[str, str]
    accepted: Accepted
    figures: dict[str, Any]
    predicted: dict[str, list[str]]

    def text(self) -> str:
        document = {"schema_version": SCHEMA_VERSION, **vars(self)}
        return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


@dataclass(frozen=True)
class Now:
    """What the program says now.

    figures    by kind of table: all rows, sources, regimes (each whole, fit and held out), refusals
    predicted  by kind of table: the names of the rows that have a prediction
    tables     by kind of table: SHA-256 of the file
    versions   of dpsim and of NumPy
    """

    figures: dict[str, Any]
    predicted: dict[str, list[str]]
    tables: dict[str, str]
    versions: dict[str, str]


# -- reading --------------------------------------------------------------------------------------


def read(text: str | None) -> Kept:
    """The document in `text`.  Raises Broken for anything that cannot be compared with."""
    if text is None:
        raise Broken("accuracy.json is missing")
    try:
        document = json.loads(text, parse_constant=_no_number)
        if document.pop("schema_version") != SCHEMA_VERSION:
            raise Broken(f"accuracy.json: schema_version is not {SCHEMA_VERSION}")
        kept = Kept(**document)
        _checked(kept)
    except Broken:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Broken(f"accuracy.json cannot be read: {error}") from None
    return kept


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")


def _checked(kept: Kept) -> None:
    if type(kept.revision) is not int or kept.revision < 1:
        raise Broken("accuracy.json: revision is not a whole number above 0")
    for kind in KINDS:
        rows = kept.predicted[kind]
        if not rows or len(set(rows)) != len(rows) or not all(isinstance(r, str) for r in rows):
            raise Broken(f"accuracy.json: predicted.{kind} is empty, or names a row twice")
        if not kept.tables[kind]:
            raise Broken(f"accuracy.json: tables.{kind} is empty")
    found = groups(kept.figures)
    if set(found) != set(kept.accepted):
        odd = sorted(set(found) ^ set(kept.accepted))[0]
        raise Broken(f"accuracy.json: {odd}: accepted and figures have not the same groups")
    for name, accepted in kept.accepted.items():
        for number in (*accepted.values(), *found[name].values()):
            if isinstance(number, bool) or not math.isfinite(number) or number < 0:
                raise Broken(f"accuracy.json: {name}: {number!r} is no figure")
        if accepted["n"] < 1 or accepted["median_error"] > found[name]["median_error"] * (1 + SAME):
            raise Broken(f"accuracy.json: {name}: accepted is worse than the figures themselves")


def groups(figures: Mapping[str, Any]) -> Accepted:
    """The groups that are guarded: each table as a whole, by its name, and each of its regimes."""
    found = {}
    for kind in KINDS:
        found[kind] = _guarded(figures[kind]["all"]["all"])
        for name, halves in figures[kind]["regimes"].items():
            found[f"{kind} | {name}"] = _guarded(halves["all"])
    return found


def _guarded(figures: Mapping[str, float]) -> dict[str, float]:
    # no row is scored: worse than any error
    return {"n": figures["n"], "median_error": figures.get("median_error", math.inf)}


# -- comparing ------------------------------------------------------------------------------------


def check(text: str | None, page: str | None, own_page: str, now: Now, changelog: str) -> list[str]:
    """Everything that is wrong; empty where all is well.

    text      accuracy.json
    page      accuracy.md, and `own_page` as it follows from accuracy.json
    """
    try:
        kept = read(text)
    except Broken as error:
        return [f"{error}: no result can pass"]
    found = [*worse(kept, now), *stale(kept, now), *unexplained(kept, changelog)]
    if page != own_page:
        found.append("accuracy.md is stale: it is not the page of accuracy.json")
    return found


def worse(kept: Kept, now: Now) -> list[str]:
    """Where `now` is worse than what is accepted."""
    found = []
    for kind in KINDS:
        if now.tables[kind] != kept.tables[kind]:
            found.append(f"{kind}.csv is not the table that the accepted figures are about")
    fresh = groups(now.figures)
    for name, accepted in kept.accepted.items():
        if finding := _worse(name, accepted, fresh.get(name)):
            found.append(finding)
    for kind in KINDS:
        lost = set(kept.predicted[kind]) - set(now.predicted[kind])
        found += _some(f"{kind}: has no prediction any more: {row}" for row in sorted(lost))
    return found


def _worse(name: str, accepted: Mapping[str, float], now: Mapping[str, float] | None) -> str:
    """What is worse in one group; empty where nothing is."""
    whole = name in KINDS
    if not whole and accepted["n"] < ENOUGH:
        return ""
    if now is None or (now["n"] < accepted["n"] if whole else now["n"] < ENOUGH):
        scored = 0 if now is None else now["n"]
        return f"{name}: {scored:g} rows are scored, {accepted['n']:g} were"
    rise = RISE if whole else RISE_OF_REGIME
    limit = accepted["median_error"] * (1.0 + rise)
    # said this way round, so that no number that isn't one passes
    if now["median_error"] <= limit * (1.0 + SAME):
        return ""
    return (
        f"{name}: the median error is {now['median_error']:.2%}, accepted are "
        f"{accepted['median_error']:.2%} and {rise:.0%} more (n = {now['n']:g})"
    )


def stale(kept: Kept, now: Now) -> list[str]:
    """Where the file is not what the program says now."""
    found = list(_differences(kept.figures, now.figures, "figures"))
    for kind in KINDS:
        more = set(now.predicted[kind]) - set(kept.predicted[kind])
        found += [f"predicted.{kind}: new: {row}" for row in sorted(more)]
    if kept.versions.get("dpsim") != now.versions["dpsim"]:
        found.append(f"versions.dpsim: {now.versions['dpsim']} now")
    return [f"accuracy.json is stale: {line}" for line in _some(found)]


def _differences(want: Any, got: Any, where: str) -> Iterator[str]:
    """One line per figure that is another one now."""
    if isinstance(want, dict) and isinstance(got, dict):
        for key in dict.fromkeys([*want, *got]):
            yield from _differences(want.get(key), got.get(key), f"{where}.{key}")
    elif not _same(want, got):
        yield f"{where}: {want!r} there, {got!r} now"


def _same(want: Any, got: Any) -> bool:
    if isinstance(want, int | float) and isinstance(got, int | float):
        return math.isclose(want, got, rel_tol=SAME, abs_tol=1e-9)
    return bool(want == got)


def _some(lines: Any) -> list[str]:
    """The first few of `lines`, and how many more there are."""
    every = list(lines)
    rest = len(every) - SHOWN
    return [*every[:SHOWN], *([f"and {rest} more of this kind"] if rest > 0 else [])]


# -- revisions ------------------------------------------------------------------------------------


def reasons(changelog: str) -> dict[int, str]:
    """Revisions that entries under "Changed predictions" name, and what they say about them."""
    sections = re.findall(r"^### Changed predictions\n(.*?)(?=^##|\Z)", changelog, re.S | re.M)
    found: dict[int, str] = {}
    for section in sections:
        for entry in re.split(r"^[-*] ", section, flags=re.M)[1:]:
            text = " ".join(entry.split())
            if named := re.search(r"`accuracy` revision (\d+)\b[\s:.,;-]*", text):
                found[int(named[1])] = text[: named.start()] + text[named.end() :]
    return found


def unexplained(kept: Kept, changelog: str) -> list[str]:
    """What CHANGELOG.md lacks about the revision, or knows and the file doesn't."""
    known = reasons(changelog)
    found = _reason_missing(kept.revision, kept.because, known)
    if max(known, default=0) > kept.revision:
        found.append(
            f"CHANGELOG.md has `accuracy` revision {max(known)}, accuracy.json is at "
            f"revision {kept.revision}"
        )
    return found


def _reason_missing(revision: int, because: str, known: Mapping[int, str]) -> list[str]:
    entry = f"CHANGELOG.md, Changed predictions: `accuracy` revision {revision}"
    if revision not in known:
        return [f"{entry}: there is no such entry"]
    reason = " ".join(because.split())
    if len(reason) < 10 or reason not in known[revision]:
        return [f"{entry}: the entry does not hold the reason given: {reason or 'none'!r}"]
    return []


def revised(text: str | None, now: Now, changelog: str, number: int, because: str) -> Kept:
    """`now` as the start of revision `number`, whatever was accepted before.

    Raises Stopped where that is not the next revision, or where CHANGELOG.md does not explain it.
    """
    known = reasons(changelog)
    try:
        following = read(text).revision + 1
    except Broken:
        following = max(known, default=1)  # of a lost file, only CHANGELOG.md tells the revision
    if number != following:
        raise Stopped(f"--revision {number}: the next revision is {following}")
    kept = Kept(number, because, now.versions, now.tables, {}, now.figures, now.predicted)
    kept = replace(kept, accepted=groups(now.figures))
    if missing := unexplained(kept, changelog):
        raise Stopped(*missing)
    return kept


def renewed(text: str | None, now: Now) -> Kept:
    """`now` within the same revision: what is accepted stays, or becomes better.

    Raises Stopped where `now` is worse than the limits allow, or where there is nothing to compare
    with.
    """
    try:
        kept = read(text)
    except Broken as error:
        raise Stopped(
            f"{error}: start anew with --revision N --because REASON, where N and the reason "
            "stand in CHANGELOG.md under Changed predictions"
        ) from None
    if findings := worse(kept, now):
        raise Stopped(
            *findings,
            f"where this is right: --revision {kept.revision + 1} --because REASON, with an entry "
            f"`accuracy` revision {kept.revision + 1} in CHANGELOG.md under Changed predictions",
        )
    accepted = {
        name: _better(kept.accepted.get(name), figures)
        for name, figures in groups(now.figures).items()
    }
    return Kept(
        kept.revision, kept.because, now.versions, now.tables, accepted, now.figures, now.predicted
    )


def _better(accepted: Mapping[str, float] | None, now: Mapping[str, float]) -> dict[str, float]:
    """The better of both; the number of rows too is accepted as the largest there was.  Of too few
    rows there was nothing to hold on to."""
    if accepted is None or accepted["n"] < ENOUGH:
        return dict(now)
    return {
        "n": max(accepted["n"], now["n"]),
        "median_error": min(accepted["median_error"], now["median_error"]),
    }
