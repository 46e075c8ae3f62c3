"""The accuracy gate: what it lets pass, and what it does not, on made-up figures and tables."""

from __future__ import annotations

import csv
import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
REASON = "the switch is slower than its vendor says"
CHANGELOG = f"""# Changelog

## [Unreleased]

### Added

- Nothing about `accuracy` revision 7: not a changed prediction.

### Changed predictions

- Something else.
- `accuracy` revision 1: {REASON},
  and that is all.

## [0.1.0]
"""


@pytest.fixture(scope="module", autouse=True)
def programs() -> Iterator[None]:
    """The modules beside `validation/accuracy.py` can be imported, as its own start does it."""
    folders = [str(ROOT / "validation"), str(ROOT / "validation" / "published")]
    sys.path[:0] = folders
    yield
    for folder in folders:
        sys.path.remove(folder)


@pytest.fixture(scope="module")
def gate() -> Any:
    return importlib.import_module("_accuracy_gate")


def figures(n: int = 40, median: float = 0.10) -> dict[str, Any]:
    own = {"n": n, "median_error": median, "p90_error": 3 * median, "signed_bias": -0.01,
           "coverage": 0.9, "median_half_width": 0.2, "skill": 0.5,
           "baselines": {"linear": {"n": n, "median_error": 0.3, "p90_error": 0.5}}}  # fmt: skip
    return {"all": own, "fit": own, "held_out": {"n": 0}}


def table(regimes: dict[str, dict[str, Any]] | None = None, **changes: Any) -> dict[str, Any]:
    found = {
        "rows": 50,
        "status": {"predicted": 40, "refused": 10},
        "all": figures(),
        "sources": {"A": figures()},
        "regimes": {"small": figures(9, 0.2), "large": figures(31, 0.1)} | (regimes or {}),
        "across_nodes": {
            "n": 3, "sources": 1, "mean_over_sources_of_median_error": 0.1, "skill": 0.5,
        },
        "faulty": {"predicted": 4, "outside": 3},
        "refusals": {"a|b is not modelled": 10},
    }  # fmt: skip
    return found | changes


@pytest.fixture(scope="module")
def now(gate: Any) -> Callable[..., Any]:
    def make(
        training: dict[str, Any] | None = None,
        rows: tuple[str, ...] = ("r1", "r2"),
        tables: str = "t",
    ) -> Any:
        return gate.Now(
            {"training": training or table(), "collectives": table()},
            {"training": list(rows), "collectives": ["c1"]},
            {"training": tables, "collectives": "u"},
            {"dpsim": "1.0", "numpy": "2.0"},
        )

    return make


@pytest.fixture(scope="module")
def kept(gate: Any, now: Callable[..., Any]) -> Any:
    """Revision 1, as it is written at first."""
    return gate.revised(None, now(), CHANGELOG, 1, REASON)


@pytest.fixture(scope="module")
def findings(gate: Any, kept: Any) -> Callable[..., list[str]]:
    def find(found: Any, changelog: str = CHANGELOG, page: str = "page") -> list[str]:
        return list(gate.check(kept.text(), page, "page", found, changelog))

    return find


# -- what passes ----------------------------------------------------------------------------------


def test_the_same_figures_pass(findings: Any, now: Any) -> None:
    assert findings(now()) == []


def test_what_another_processor_rounds_differently_passes(findings: Any, now: Any) -> None:
    assert findings(now(table(all=figures(40, 0.1 * (1 + 5e-7))))) == []


@pytest.mark.parametrize("median", [0.05, 0.1, 0.10499])
def test_a_rise_within_the_limit_is_not_worse(
    gate: Any, kept: Any, now: Any, median: float
) -> None:
    assert gate.worse(kept, now(table(all=figures(40, median)))) == []


def test_a_regime_of_few_rows_is_not_guarded(gate: Any, kept: Any, now: Any) -> None:
    assert gate.worse(kept, now(table({"small": figures(9, 2.0)}))) == []


# -- what fails -----------------------------------------------------------------------------------


def test_a_rise_of_the_whole_beyond_five_percent_fails(findings: Any, now: Any) -> None:
    found = findings(now(table(all=figures(40, 0.1051))))
    assert any("training: the median error is 10.51%" in line for line in found)


@pytest.mark.parametrize(("median", "fails"), [(0.1099, False), (0.1101, True)])
def test_a_rise_of_a_regime_beyond_ten_percent_fails(
    gate: Any, kept: Any, now: Any, median: float, fails: bool
) -> None:
    found = gate.worse(kept, now(table({"large": figures(31, median)})))
    assert bool(found) is fails
    assert all("training | large: the median error" in line for line in found)


def test_an_error_that_is_no_number_fails(gate: Any, kept: Any, now: Any) -> None:
    assert gate.worse(kept, now(table(all=figures(40, float("nan")))))


def test_a_row_that_is_refused_now_fails(findings: Any, now: Any) -> None:
    assert "training: has no prediction any more: r2" in findings(now(rows=("r1",)))


def test_fewer_scored_rows_fail(gate: Any, kept: Any, now: Any) -> None:
    (found,) = gate.worse(kept, now(table(all=figures(39, 0.01))))
    assert found == "training: 39 rows are scored, 40 were"


def test_a_regime_that_vanishes_fails(gate: Any, kept: Any, now: Any) -> None:
    (found,) = gate.worse(kept, now(table(regimes={"large": figures(9, 0.01)})))
    assert found == "training | large: 9 rows are scored, 31 were"


def test_another_table_fails(gate: Any, kept: Any, now: Any) -> None:
    (found,) = gate.worse(kept, now(tables="other"))
    assert found.startswith("training.csv is not the table")


@pytest.mark.parametrize(
    "change",
    [
        {"all": figures(40, 0.1 * (1 - 2e-6))},
        {"status": {"predicted": 41, "refused": 9}},
        {"sources": {"B": figures()}},
    ],
)
def test_figures_that_are_not_fresh_fail(findings: Any, now: Any, change: dict[str, Any]) -> None:
    found = findings(now(table(**change)))
    assert found
    assert all(line.startswith("accuracy.json is stale: figures.training") for line in found)


def test_a_row_that_is_newly_predicted_makes_the_file_stale(findings: Any, now: Any) -> None:
    (found,) = findings(now(rows=("r1", "r2", "r3")))
    assert found == "accuracy.json is stale: predicted.training: new: r3"


@pytest.mark.parametrize("page", ["", "Page", None])
def test_a_page_that_does_not_follow_from_the_figures_fails(
    gate: Any, kept: Any, now: Any, page: str | None
) -> None:
    (found,) = gate.check(kept.text(), page, "page", now(), CHANGELOG)
    assert "accuracy.md is stale" in found


# -- a file that cannot be trusted ----------------------------------------------------------------


def broken(change: Callable[[dict[str, Any]], object]) -> Callable[[str], str]:
    def changed(text: str) -> str:
        document = json.loads(text)
        change(document)
        return json.dumps(document)

    return changed


BROKEN = {
    "empty": lambda text: "",
    "cut off": lambda text: text[: len(text) // 2],
    "a list": lambda text: "[]",
    "nothing": lambda text: "{}",
    "not a number": lambda text: text.replace('"median_error": 0.1,', '"median_error": NaN,'),
    "no accepted figures": broken(lambda d: d.pop("accepted")),
    "accepted lost its groups": broken(lambda d: d["accepted"].clear()),
    "accepted lost one group": broken(lambda d: d["accepted"].pop("training | large")),
    "accepted is a text": broken(lambda d: d["accepted"]["training"].update(median_error="0.1")),
    "accepted was raised": broken(lambda d: d["accepted"]["training"].update(median_error=0.5)),
    "accepted nothing": broken(lambda d: d["accepted"]["training"].update(n=0)),
    "no row is named": broken(lambda d: d["predicted"].update(training=[])),
    "no tables": broken(lambda d: d["tables"].clear()),
    "another schema": broken(lambda d: d.update(schema_version=2)),
    "no revision": broken(lambda d: d.update(revision=0)),
    "more than there is": broken(lambda d: d.update(other=1)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_fails_and_is_not_overwritten(
    gate: Any, kept: Any, now: Any, name: str
) -> None:
    text = BROKEN[name](kept.text())
    (found,) = gate.check(text, "page", "page", now(), CHANGELOG)
    assert found.startswith("accuracy.json")
    with pytest.raises(gate.Stopped, match="start anew with --revision N"):
        gate.renewed(text, now())


def test_a_missing_file_fails(gate: Any, now: Any) -> None:
    (found,) = gate.check(None, None, "", now(), CHANGELOG)
    assert found == "accuracy.json is missing: no result can pass"


# -- revisions ------------------------------------------------------------------------------------


def test_regenerating_never_raises_what_is_accepted(gate: Any, kept: Any, now: Any) -> None:
    """Two rises of 4 % each are together beyond 5 %."""
    first = gate.renewed(kept.text(), now(table(all=figures(40, 0.104))))
    assert first.accepted["training"]["median_error"] == 0.1
    assert first.figures["training"]["all"]["all"]["median_error"] == 0.104
    with pytest.raises(gate.Stopped, match=r"training: the median error is 10\.80%"):
        gate.renewed(first.text(), now(table(all=figures(40, 0.108))))


def test_regenerating_accepts_what_is_better(gate: Any, kept: Any, now: Any) -> None:
    found = gate.renewed(kept.text(), now(table(all=figures(44, 0.08))))
    assert found.accepted["training"] == {"n": 44, "median_error": 0.08}
    assert found.revision == 1


def test_a_regime_is_guarded_from_the_time_that_it_is_large(gate: Any, kept: Any, now: Any) -> None:
    grown = now(table({"small": figures(12, 0.4)}))
    found = gate.renewed(kept.text(), grown)
    assert found.accepted["training | small"] == {"n": 12, "median_error": 0.4}
    assert gate.worse(found, grown) == []


WORSE = table(all=figures(40, 0.2))
SECOND = CHANGELOG.replace("- Something", "- `accuracy` revision 2: bends are no longer free.\n- S")


def test_an_entry_in_the_changelog_lets_a_worse_result_pass(gate: Any, kept: Any, now: Any) -> None:
    found = gate.revised(kept.text(), now(WORSE), SECOND, 2, "bends are no longer free")
    assert found.accepted["training"]["median_error"] == 0.2
    assert gate.check(found.text(), "page", "page", now(WORSE), SECOND) == []


@pytest.mark.parametrize(
    ("changelog", "number", "because", "why"),
    [
        (CHANGELOG, 2, "bends are no longer free", "there is no such entry"),
        (SECOND, 2, "bends are free again", "does not hold the reason given"),
        (SECOND, 2, "bends", "does not hold the reason given"),
        (SECOND, 3, "bends are no longer free", "the next revision is 2"),
        (SECOND, 1, REASON, "the next revision is 2"),
    ],
)
def test_without_its_entry_a_worse_result_is_not_written(
    gate: Any, kept: Any, now: Any, changelog: str, number: int, because: str, why: str
) -> None:
    with pytest.raises(gate.Stopped, match=why):
        gate.revised(kept.text(), now(WORSE), changelog, number, because)


def test_an_entry_alone_does_not_let_a_worse_result_pass(findings: Any, now: Any) -> None:
    assert any("median error" in line for line in findings(now(WORSE), SECOND))


def test_a_revision_fails_whose_entry_is_taken_away(findings: Any, now: Any) -> None:
    (found,) = findings(now(), "# Changelog\n")
    assert "`accuracy` revision 1: there is no such entry" in found


def test_a_lost_file_does_not_start_again_below_the_changelog(gate: Any, now: Any) -> None:
    with pytest.raises(gate.Stopped, match="the next revision is 2"):
        gate.revised(None, now(), SECOND, 1, REASON)


def test_entries_are_read_from_their_section_only(gate: Any) -> None:
    assert gate.reasons(CHANGELOG) == {1: f"{REASON}, and that is all."}


# -- the page, the tables and the names -----------------------------------------------------------


def test_the_page_gives_every_guarded_regime_and_follows_from_the_file_alone(
    gate: Any, kept: Any
) -> None:
    page = importlib.import_module("_accuracy_page").page
    text = page(kept)
    assert text == page(gate.read(kept.text()))
    assert "| large | 31 | 10 % | 30 % | -1.0 % | 90 % | 20 % |" in text
    assert "| small |" not in text
    assert "Regimes with fewer than 10 rows: 1, which hold 9 rows." in text
    assert "| a/b is not modelled | 10 |" in text
    assert "Revision 1: the switch is slower" in text


def test_a_row_keeps_its_name_beside_one_that_is_called_the_same() -> None:
    found = importlib.import_module("_accuracy_figures")
    assert found.names(["a", "b", "a", "a"]) == ["a", "b", "a (2)", "a (3)"]


def test_refusals_are_counted_without_what_is_particular_to_a_row() -> None:
    plain = importlib.import_module("_accuracy_figures").plain
    assert plain("its calibration row: TP is not modelled (DP+TP (x))") == "TP is not modelled"
    peak = "calibrate: the measured step would need {} of {}'s peak in fp16; say so"
    assert plain(peak.format("105%", "A100")) == plain(peak.format("250%", "V100"))


def test_selection_takes_whole_series_and_every_third_size() -> None:
    select = importlib.import_module("select_rows")
    training = [
        {"series_id": s, "quality": q, "license": x}
        for s, q, x in (("a", "C", "MIT"), ("a", "A", "MIT"), ("b", "C", "MIT"), ("c", "A", "none"))
    ]
    assert select.training(training) == training[:2]
    collectives = [
        {"series_id": s, "size_bytes": str(size), "license": x}
        for s, x, sizes in (("a", "MIT", range(1, 9)), ("b", "MIT", [64]), ("c", "GPL", [1, 2]))
        for size in sizes
    ]
    chosen = [(row["series_id"], row["size_bytes"]) for row in select.collectives(collectives)]
    assert chosen == [("a", "2"), ("a", "5"), ("a", "8"), ("b", "64")]


@pytest.mark.parametrize("name", ["training.csv", "collectives.csv"])
def test_only_rows_with_an_open_licence_ship(name: str) -> None:
    select = importlib.import_module("select_rows")
    with (ROOT / "validation" / "published" / name).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) > 500
    assert {row["license"] for row in rows} <= select.OPEN


def test_the_written_files_belong_together(gate: Any) -> None:
    """Without predicting anything: the page follows from the file, and the file is about the
    tables that are there."""
    folder = ROOT / "validation"
    kept = gate.read((folder / "accuracy.json").read_text(encoding="utf-8"))
    page = importlib.import_module("_accuracy_page").page(kept)
    assert page == (folder / "accuracy.md").read_text(encoding="utf-8")
    digest = importlib.import_module("_accuracy_figures").digest
    for kind, sha in kept.tables.items():
        assert digest(folder / "published" / f"{kind}.csv") == sha
    assert gate.unexplained(kept, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")) == []
