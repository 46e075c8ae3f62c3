"""`make gpu-records`: every measuring program is run, in time, and what it wrote is kept or not."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
VALIDATION = ROOT / "validation"


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """validation/gpu_records.py."""
    monkeypatch.syspath_prepend(str(VALIDATION))
    yield importlib.import_module("gpu_records")
    sys.modules.pop("gpu_records", None)


def test_all_programs_fit_into_eight_minutes(programs: ModuleType) -> None:
    assert sum(wanted.seconds for wanted in programs.WANTED) <= 8 * 60
    assert {wanted.program for wanted in programs.WANTED} == {
        "measure_ddp.py", "measure_collectives.py",
    }  # fmt: skip


def test_every_section_that_one_gpu_can_give_is_asked_for(programs: ModuleType) -> None:
    """Those of records/README.md, and a fake world, shared GPUs and a long run beside them."""
    asked = {
        section
        for wanted in programs.WANTED
        for word, section_list in zip(wanted.words, wanted.words[1:], strict=False)
        if word == "--sections"
        for section in section_list.split(",")
    }
    assert asked == {
        "peaks", "layers", "steps", "ddp", "buckets", "collectives", "overlap", "contention",
    }  # fmt: skip


def test_a_dry_run_prints_commands_and_writes_nothing(
    programs: ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert programs.main(["--dry-run", "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(programs.WANTED)
    assert all("--device cuda" in line for line in lines)
    assert not list(tmp_path.iterdir())


def test_a_program_runs_on_a_cpu_and_its_record_is_kept(
    programs: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The whole way, with the smallest of the programs; the others have tests of their own."""
    pytest.importorskip("torch")
    few = [one._replace(seconds=120) for one in programs.WANTED if one.name == "spread"]
    monkeypatch.setattr(programs, "WANTED", tuple(few))
    given = ["--device", "cpu", "--tiny", "--out", str(tmp_path), "--minutes", "3"]
    assert programs.main(given) == 0
    (record,) = tmp_path.iterdir()
    assert json.loads(record.read_text())["world"]["device"] == "cpu"


def test_what_is_no_record_or_of_another_device_is_not_kept(
    programs: ModuleType, tmp_path: Path
) -> None:
    shipped = VALIDATION / "records" / "cpu-2ranks-gloo.json"
    shutil.copy(shipped, tmp_path / "a.json")
    assert programs.kept(tmp_path / "a.json", "cpu") == ""
    assert "not on cuda" in programs.kept(tmp_path / "a.json", "cuda")
    (tmp_path / "b.json").write_text("{}")
    assert "cannot read" in programs.kept(tmp_path / "b.json", "cpu")
    assert programs.kept(tmp_path / "c.json", "cpu") == "wrote nothing"


def test_a_program_that_takes_too_long_is_ended(programs: ModuleType) -> None:
    assert "ended after" in programs.run([sys.executable, "-c", "import time; time.sleep(60)"], 0.2)
    assert programs.run([sys.executable, "-c", "raise SystemExit(3)"], 60) == "exit code 3"


def test_the_accuracy_page_says_whether_there_is_a_gpu_record(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(VALIDATION))
    page = importlib.import_module("_accuracy_page")
    assert "has recorded no GPU" in page.recorded(tmp_path)
    (tmp_path / "h200-steps.json").write_text('{"world": {"device": "cuda"}}')
    assert "`h200-steps.json`" in page.recorded(tmp_path)
