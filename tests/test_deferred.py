"""Packages that few commands need are imported when something of them is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

#: what `dpsim run` of a machine that is bundled does without
NOT_FOR_A_RUN = [
    "concurrent.futures", "matplotlib", "multiprocessing", "networkx", "pandas", "scipy", "torch",
]  # fmt: skip
ROOT = Path(__file__).resolve().parent.parent


def said(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize("first", ["", "nx.path_graph(3); "])
def test_a_deferred_package_is_python_s_own_for_everybody_else(first: str) -> None:
    """Before and after its first use: found with its spec, imported whole, and one module."""
    code = (
        f"from dpsim.core.deferred import nx; {first}import importlib.util\n"
        "found = importlib.util.find_spec('networkx')\n"
        "import networkx, networkx.generators.classic as classic\n"
        "print(found.origin == networkx.__spec__.origin, 'Graph' in vars(networkx),\n"
        "      isinstance(nx.path_graph(3), networkx.Graph), nx.path_graph is classic.path_graph)"
    )
    assert said(code) == "True True True True"


def test_threads_that_use_it_first_all_get_it() -> None:
    code = (
        "import sys, threading; from dpsim.core.deferred import Deferred\n"
        "sys.setswitchinterval(1e-6)\n"
        "lazy, found, start = Deferred('wave'), [], threading.Barrier(16)\n"
        "def use(): start.wait(); found.append(lazy.Wave_read)\n"
        "threads = [threading.Thread(target=use) for _ in range(16)]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()\n"
        "import wave; print(found == [wave.Wave_read] * 16)"
    )
    assert said(code) == "True"


def test_a_toy_needs_no_graphs_and_draws_no_pictures() -> None:
    code = (
        "import sys, dpsim; dpsim.predict('worked/ddp_steady')\n"
        "heavy = {'networkx', 'matplotlib', 'pandas', 'scipy', 'torch', 'rich', 'typer'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert said(code) == "[]"


def test_a_bundled_run_loads_nothing_that_it_does_not_need() -> None:
    """The command users meet first: no graphs, no pools of processes, no pictures."""
    code = (
        "import contextlib, io, sys; sys.argv = ['dpsim', 'run', 'quickstart']\n"
        "from dpsim.cli import status\n"
        "with contextlib.redirect_stdout(io.StringIO()): code = status()\n"
        f"print(code, sorted(set({NOT_FOR_A_RUN}) & set(sys.modules)))"
    )
    assert said(code) == "0 []"
