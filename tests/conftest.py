"""What several test files use."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dpsim.cli import _run


@pytest.fixture
def cli(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    """Runs the command in this process, in an empty folder: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["dpsim", *arguments])
        code = _run()
        out, err = capsys.readouterr()
        return code, out, err

    return run
