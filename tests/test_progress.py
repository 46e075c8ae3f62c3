"""Progress: a bar after two seconds on a terminal, and elsewhere a line every ten seconds."""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path

import pytest

from dpsim.cli.app import app
from dpsim.report import progress as shown
from dpsim.report.progress import Progress, progress

MEASURED = Path(__file__).parent / "data" / "calibration" / "old-layout-a100-8gpu-allreduce.log"
TRAINING = """\
model,accelerator,gpus_per_node,total_gpus,batch_per_gpu,precision,value,unit
ResNet-50,NVIDIA V100-SXM2-16GB,8,1,256,FP16 mixed,802.9,images/s
"""
COLLECTIVES = """\
accelerator,gpus_per_node,nodes,ranks,fabric,library,collective,size_bytes,time_us
A100-SXM4-80GB,8,1,8,NVLink,NCCL 2.18,all_reduce,1000000,60
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def said(monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO, patience: float) -> str:
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr(shown, "PATIENCE", patience)
    with progress("points", left=True) as bar:
        bar.of(3, 7)
        time.sleep(0.2 if patience < 1 else 0.0)
    return stderr.getvalue()


def test_a_bar_appears_on_a_terminal_once_patience_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown.PATIENCE == 2.0
    assert "3/7" in said(monkeypatch, Terminal(), 0.0)
    assert said(monkeypatch, Terminal(), 60.0) == ""
    assert said(monkeypatch, io.StringIO(), 0.0) == ""


def test_off_a_terminal_a_line_says_every_ten_seconds_how_many_are_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, stderr = [100.0], io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with progress("files") as bar:
        for done, passed in enumerate((0.0, 9.0, 12.0, 21.0, 23.0, 40.0)):
            now[0] = 100.0 + passed
            bar.of(done, 5)
    assert stderr.getvalue().splitlines() == [
        "dpsim: 2 of 5 files after 12 s", "dpsim: 4 of 5 files after 23 s",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("run", "worked/ddp_steady"), 1),
        (("explain", "worked/ddp_steady"), 2),
        (("calibrate", str(MEASURED)), 1),
        (("validate", "{training}", "--jobs", "1"), 1),
        (("validate", "{collectives}", "--jobs", "1"), 1),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_long_commands_tell_how_far_they_are(
    command: tuple[str, ...], told: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tables = {"training": TRAINING, "collectives": COLLECTIVES}
    for name, text in tables.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(Progress, "of", lambda _, done, total: found.append((done, total)))
    arguments = [part.format(**{name: tmp_path / name for name in tables}) for part in command]
    assert app()([*arguments, "--json"], standalone_mode=False) == 0
    assert found == [(0, 1), (1, 1)] * told
