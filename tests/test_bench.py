"""What `make bench` measures is what it says it measures."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from dpsim.compile.program import Op

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
import bare
import cost
import lines
from run import PARTS, growth


@pytest.mark.parametrize(("ranks", "steps"), [(5, 1), (5, 7), (bare.PIECE + 3, 2), (4096, 9)])
def test_the_bare_pass_adds_every_computation_and_takes_the_last_rank(
    ranks: int, steps: int
) -> None:
    """Two computations before the collective: twice the largest factor of the last steps."""
    ops = (Op("B0", "backward"), Op("B1", "backward"), Op("C", "collective", stream="c"))
    rows = max(1, min(steps, bare.PIECE // ranks))
    factors = np.random.default_rng(0).normal(1.0, 0.02, (steps, ranks))
    last = factors[(steps - 1) // rows * rows :]
    assert bare.bare_pass(ops, ranks, steps)() == pytest.approx(2 * float(last.max()))


def test_what_is_grown_is_a_step_of_ddp() -> None:
    ops = bare.operations(lines.GROWN)
    assert {op.operation for op in ops if not op.on_device} == {"all_reduce"}
    assert sum(op.scales for op in ops) > 100


def test_lines_have_names_of_their_own_and_growth_is_told_of_the_largest() -> None:
    names = [*(line.name for line in lines.lines()), *PARTS]
    assert len(set(names)) == len(names)
    known = {ranks: cost.Cost(ranks**1.1, 0) for ranks in lines.GROWTH}
    assert growth(known).count("1.10 from") == 2


def test_a_command_that_fails_has_no_cost_and_says_why(tmp_path: Path) -> None:
    code = "import sys; print('no number', file=sys.stderr); sys.exit(4)"
    assert cost.best((sys.executable, "-c", code), tmp_path, 3, 60.0).failed == "no number"
    code = "import time; time.sleep(60)"
    assert "ended after" in cost.once((sys.executable, "-c", code), tmp_path, 0.5).failed
    killed = cost.once((sys.executable, "-c", code), tmp_path, 60.0, kill_after=0.5)
    assert killed.failed == ""


def test_a_crash_is_no_finding(tmp_path: Path) -> None:
    """dpsim ends with 1 when it found something, and Python when it crashed."""
    code = "print('half'); raise RuntimeError('boom')"
    assert cost.once((sys.executable, "-c", code), tmp_path, 60.0).failed == "RuntimeError: boom"
    assert "exit code 1" in cost.why_failed(("python", "work.py"), 1, "half", "")
    dpsim = lines.dpsim("stragglers", "quickstart")
    crash = "Traceback (most recent call last):\nImportError: gone"
    assert cost.why_failed(dpsim, 1, "a finding", "dpsim: warning: so") == ""
    assert cost.why_failed(dpsim, 1, "half", crash) == "ImportError: gone"
    assert cost.why_failed(dpsim, 1, "", "No module named dpsim") == "No module named dpsim"


def test_a_command_costs_what_its_children_cost_too(tmp_path: Path) -> None:
    burn = "sum(range(6_000_000))"
    alone = cost.once((sys.executable, "-c", "pass"), tmp_path, 60.0)
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
    assert cost.once((sys.executable, "-c", code), tmp_path, 60.0).cpu > alone.cpu
