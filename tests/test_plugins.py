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
from dpsim.measurements.readers import read_any

STRATEGY = """
from dpsim.compile.strategies.ddp import Ddp
from dpsim.core.record import record

@record
class Ours(Ddp):
    '''A strategy of another package.'''
"""
BARE = STRATEGY.replace("@record", "from dpsim.compile.strategies import Strategy").replace(
    "Ours(Ddp)", "Bare(Strategy)"
)
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

    def put(
        package: str, points: dict[str, str], text: str = STRATEGY, folder: str = "strategies"
    ) -> None:
        about = tmp_path / f"{package}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"{name} = {value}" for name, value in points.items()]
        (about / "entry_points.txt").write_text("\n".join([f"[dpsim.{folder}]", *lines, ""]))
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


def test_a_class_that_stands_elsewhere_keeps_its_registered_name(install: Install) -> None:
    install("a", {"our-ddp": "json:Ours"})
    install("b", {"our-ddp-too": "theirs_c"})
    json.Ours = plugins.find("strategies", "ddp")  # type: ignore[attr-defined]
    try:
        found = dpsim.predict({**SCENARIO, "strategy": {"kind": "our-ddp"}})
    finally:
        del json.Ours  # type: ignore[attr-defined]
    assert found.document["scenario"]["strategy"]["kind"] == "ddp"  # dpsim's own stays its own


@pytest.mark.parametrize(
    ("points", "name", "said"),
    [
        ({"ddp": "theirs_a:Ours"}, "ddp", "belongs to dpsim itself and to package a"),
        ({"x": "theirs_a:None_such"}, "x", "'x' in strategies is of package a: theirs_a:None_such"),
        ({"x": "no_such_module"}, "x", "is of package a: no_such_module cannot be loaded: Module"),
        ({"x": "theirs_a:record"}, "x", "is of package a: theirs_a:record is no Strategy"),
        ({"x": "json"}, "x", "is of package a: json must hold exactly one Strategy, not 0"),
        ({"x": "theirs_a:Bare"}, "x", "is of package a: Bare is no record: @record is needed"),
        ({"x": ""}, "x", "is of package a: '' names nothing; module or module:Class is needed"),
        ({"x": "a b:c"}, "x", "is of package a: 'a b:c' names nothing; module or module:Class"),
    ],
)
def test_a_package_that_is_wrong_is_named_and_the_rest_goes_on(
    install: Install, points: dict[str, str], name: str, said: str
) -> None:
    install("a", points, BARE if "theirs_a:Bare" in points.values() else STRATEGY)
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


@pytest.mark.parametrize(
    ("method", "failing"),
    [("making one", "__init__(self)"), ("claims", "claims(self, path, head)")],
)
def test_a_reader_that_fails_disturbs_no_other(
    install: Install, tmp_path: Path, method: str, failing: str
) -> None:
    text = f"""
from dpsim.measurements.readers import Reader

class Ours(Reader):
    def {failing}:
        raise RuntimeError("boom")
"""
    install("a", {"x": "theirs_a"}, text, "readers")
    (tmp_path / "steps.csv").write_text("step,seconds\n1,0.5\n2,0.25\n")
    said = f"left out: 'x' of package a: {method} fails: RuntimeError: boom"
    with pytest.warns(UserWarning, match=said):
        found = read_any(tmp_path / "steps.csv")
    assert found.steps[0].samples == (0.5, 0.25)


def test_a_reader_that_fails_at_its_own_file_is_named(install: Install, tmp_path: Path) -> None:
    text = """
from dpsim.measurements.readers import Reader

class Ours(Reader):
    def claims(self, path, head):
        return head.startswith(b"ours")

    def read(self, path):
        return {}["steps"]
"""
    install("a", {"x": "theirs_a"}, text, "readers")
    (tmp_path / "t.txt").write_text("ours")
    with pytest.raises(Refused, match=r"t\.txt: 'x' of package a: read fails: KeyError: 'steps'"):
        read_any(tmp_path / "t.txt")


@pytest.mark.parametrize(
    ("method", "body", "said"),
    [
        ("memory(self, job)", "{'states': float('nan')}", "memory fails: states: nan is no"),
        ("memory(self, job)", "{'states': -1}", "memory fails: states: -1 is no finite number"),
        ("memory(self, job)", "{'states': '1 GB'}", "memory fails: states: 1 GB is no finite"),
        ("memory(self, job)", "None", "memory fails: 'None' is no answer"),
        ("notes(self, job)", "{}['a']", "notes fails: KeyError: 'a'"),
        ("groups(self, ranks)", "1 / 0", "groups fails: ZeroDivisionError: division by zero"),
        ("beside(self, job)", "(Beside('save', 'epoch', -1.0),)", "beside fails: save: -1.0 is"),
        ("exchange(self, job, iteration)", "None", "exchange fails: 'None' is no answer"),
        (
            "exchange(self, job, iteration)",
            "leg('all_reduce', float('nan'))",
            "G: nan is no finite",
        ),
        ("exchange(self, job, iteration)", "leg('all_reduce', -8)", "G: -8 is no finite"),
        ("exchange(self, job, iteration)", "leg('reduce_all', 8)", "G: no operation 'reduce_all'"),
        (
            "program(self, job, iteration)",
            "op(seconds=float('inf'))",
            "program fails: F: inf is no",
        ),
        ("program(self, job, iteration)", "op(bytes=float('nan'))", "program fails: F: nan is no"),
    ],
)
def test_a_strategy_that_gives_no_answer_is_named_with_its_package(
    install: Install, method: str, body: str, said: str
) -> None:
    text = f"""
from dpsim.compile.program import Op
from dpsim.compile.strategies import Beside, Exchange, Leg, Message, Program, Strategy
from dpsim.compile.strategies.ddp import Ddp
from dpsim.core.record import record

def leg(operation, size):
    return Exchange((Message(0, (Leg("G", operation, size),)),))

def op(**numbers):
    return Program((Op("F", "forward", **numbers),))

@record
class Ours(Ddp):
    def accept_stage(self, job):
        pass

    def {method}:
        return {body}
    program = Strategy.program if "exchange" in vars() else vars().get("program", Ddp.program)
    on_stage = Strategy.on_stage
"""
    install("a", {"x": "theirs_a:Ours"}, text)
    layer = SCENARIO["model"]["layers"][0]
    data = {**SCENARIO, "model": {"layers": [{**layer, "name": name} for name in "ab"]}}
    data |= {"cluster": {"ranks": 4}, "strategy": {"kind": "x"}}
    for stages in (1, 2) if method.startswith(("memory", "exchange")) else (1,):
        with pytest.raises(Refused, match=f"'x' of package a: .*{said}"):
            _ = dpsim.predict({**data, "parallel": {"pipeline": stages}}).document


def test_a_backend_that_has_no_plan_is_named_with_its_package(install: Install) -> None:
    text = """
from dpsim.backends import Backend
from dpsim.core.record import record

@record
class Ours(Backend):
    ideal = True

    def plan(self, operation, ranks, size, topology):
        return {}[operation]
"""
    install("a", {"x": "theirs_a"}, text, "backends")
    with pytest.raises(Refused, match="'x' of package a: plan of all_reduce fails: KeyError: 'all"):
        dpsim.predict({**SCENARIO, "strategy": {"kind": "ddp"}, "collective": {"backend": "x"}})
