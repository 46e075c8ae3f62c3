"""Plug-ins of other packages: found by their entry points, and no trouble for anybody else."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import dpsim
from dpsim.core import plugins
from dpsim.core.record import Refused
from dpsim.describe.scenario import to_data

STRATEGY = """
from dpsim.compile.strategies.ddp import Ddp
from dpsim.core.record import record

@record
class Ours(Ddp):
    '''A strategy of another package.'''
"""
SCENARIO = {
    "model": {"layers": [{"name": "a", "parameters": 1000, "forward": "1 ms", "backward": "2 ms"}]},
    "cluster": {"ranks": 2},
    "collective": {"backend": "free"},
}
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a package with entry points (name -> value) and a module `theirs_…`."""
    monkeypatch.syspath_prepend(tmp_path)

    def clear() -> None:
        plugins.names.cache_clear()
        plugins._elsewhere.cache_clear()

    def put(package: str, points: dict[str, str], text: str = STRATEGY) -> None:
        about = tmp_path / f"{package}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"{name} = {value}" for name, value in points.items()]
        (about / "entry_points.txt").write_text("\n".join(["[dpsim.strategies]", *lines, ""]))
        (tmp_path / f"theirs_{package}.py").write_text(text)
        clear()

    yield put
    for name in [name for name in sys.modules if name.startswith("theirs_")]:
        del sys.modules[name]
    clear()


@pytest.mark.parametrize("value", ["theirs_a", "theirs_a:Ours"])
def test_a_plug_in_is_a_module_or_a_class_and_its_registered_name_is_recorded(
    install: Install, value: str
) -> None:
    install("a", {"our-ddp": value})
    found = dpsim.predict({**SCENARIO, "strategy": {"kind": "our-ddp"}})
    assert type(found.loaded.scenario.strategy).__name__ == "Ours"
    assert found.document["scenario"]["strategy"]["kind"] == "our-ddp"
    again = dpsim.predict(to_data(found.loaded.scenario))
    assert again.loaded.scenario == found.loaded.scenario


@pytest.mark.parametrize(
    ("points", "name", "said"),
    [
        ({"ddp": "theirs_a:Ours"}, "ddp", "belongs to dpsim itself and to package a"),
        ({"x": "theirs_a:None_such"}, "x", "'x' in strategies is of package a: theirs_a:None_such"),
        ({"x": "no_such_module"}, "x", "is of package a: no_such_module cannot be loaded: Module"),
        ({"x": "theirs_a:record"}, "x", "is of package a: theirs_a:record is no Strategy"),
        ({"x": "json"}, "x", "is of package a: json must hold exactly one Strategy, not 0"),
    ],
)
def test_a_package_that_is_wrong_is_named_and_the_rest_goes_on(
    install: Install, points: dict[str, str], name: str, said: str
) -> None:
    install("a", points)
    with pytest.raises(Refused, match=said):
        dpsim.predict({**SCENARIO, "strategy": {"kind": name}})
    assert dpsim.predict({**SCENARIO, "strategy": {"kind": "zero"}}).points
    with pytest.warns(UserWarning, match=f"left out: .*{said}"):
        found = dict(plugins.usable("strategies"))
    assert name not in found
    assert "zero" in found


def test_two_packages_with_one_name_are_both_named(install: Install) -> None:
    install("a", {"x": "theirs_a"})
    install("b", {"x": "theirs_b"})
    with pytest.raises(Refused, match=r"belongs to package [ab] and to package [ab]:"):
        plugins.find("strategies", "x")


def test_the_command_says_which_package_it_left_out(install: Install, cli) -> None:  # type: ignore[no-untyped-def]
    install("a", {"x": "theirs_a"}, "raise OSError('broken')")
    with pytest.warns(UserWarning, match="left out: 'x' in strategies is of package a: theirs_a"):
        code, out, err = cli("schema")
    assert (code, err) == (0, "")
    assert json.loads(out)
