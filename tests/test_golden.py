"""Every bundled scenario gives what its expected output says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import golden
import pytest

NAMES = [str(path.relative_to(golden.SCENARIOS)) for path in golden.scenarios()]


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_gives_its_expected_output(name: str) -> None:
    path = golden.SCENARIOS / name
    document = json.loads(golden.expected_of(path).read_text())
    changed = golden.differences(document["expected"], golden.current(path))
    assert not changed, f"{name} changed:\n  " + "\n  ".join(changed)


@pytest.mark.parametrize("name", NAMES)
def test_an_expected_output_says_what_it_rests_on(name: str) -> None:
    document = json.loads(golden.expected_of(golden.SCENARIOS / name).read_text())
    assert document["tag"] in golden.TAGS
    assert len(document["why"]) > 20
    if document["tag"] == "measured":
        errors = [m["error"] for m in document["expected"]["measured"] if m["role"] == "predicted"]
        assert errors
        assert max(map(abs, errors)) <= document["worst_error"]
    if document["tag"] == "closed_form":
        assert document["values"]


def _closed_forms() -> list[tuple[str, int, float]]:
    found = []
    for name in NAMES:
        document = json.loads(golden.expected_of(golden.SCENARIOS / name).read_text())
        found += [(name, int(i), value) for i, value in document.get("values", {}).items()]
    return found


@pytest.mark.parametrize(("name", "index", "seconds"), _closed_forms())
def test_a_closed_form_is_met_to_the_last_digits(name: str, index: int, seconds: float) -> None:
    """`values` holds step times worked out by hand, by the point's index."""
    document = json.loads(golden.expected_of(golden.SCENARIOS / name).read_text())
    found, near = document["expected"]["points"][index], document.get("relative", 1e-12)
    assert found["step_time_s"] == pytest.approx(seconds, rel=near)
    if near > 1e-12:
        assert found["step_time_low_s"] <= seconds <= found["step_time_high_s"]


def test_a_frozen_output_changes_only_with_a_changelog_entry() -> None:
    text = (Path(golden.ROOT) / "CHANGELOG.md").read_text()
    sections = "\n".join(re.findall(r"### Changed predictions\n(.*?)(?=\n##|\Z)", text, re.S))
    for name in NAMES:
        document = json.loads(golden.expected_of(golden.SCENARIOS / name).read_text())
        if document["tag"] in ("frozen", "measured") and document["revision"] > 1:
            stem = name.removesuffix(".yaml")
            assert f"`{stem}` revision {document['revision']}" in sections, (
                f"{name} is at revision {document['revision']}: say why under 'Changed predictions'"
            )


def test_a_change_is_named_with_its_size() -> None:
    assert golden.differences({"a": [1.0, 2.0]}, {"a": [1.0, 2.2]}) == [
        ".a[1]: 2.0 expected, 2.2 now (+10.000%)"
    ]
