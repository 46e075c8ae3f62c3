"""Packages that few commands need are imported when something of them is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def said(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    "use",
    [
        "import networkx as nx; made = nx.path_graph(3)",
        "from networkx import path_graph; made = path_graph(3)",
        "from networkx.generators.classic import path_graph; made = path_graph(3)",
        "import networkx.algorithms as a, networkx as nx; made = nx.path_graph(3)",
    ],
)
def test_a_deferred_package_works_however_it_is_imported(use: str) -> None:
    code = f"import dpsim.machines\n{use}\nimport networkx\nprint(isinstance(made, networkx.Graph))"
    assert said(code) == "True"


def test_a_package_that_is_there_already_stays() -> None:
    code = "import networkx as nx\nimport dpsim.machines\nimport networkx\nprint(nx is networkx)"
    assert said(code) == "True"


def test_a_toy_needs_no_graphs_and_draws_no_pictures() -> None:
    code = (
        "import sys, dpsim; dpsim.predict('worked/ddp_steady')\n"
        "heavy = {'networkx.classes', 'matplotlib', 'pandas', 'scipy', 'torch', 'rich', 'typer'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert said(code) == "[]"
