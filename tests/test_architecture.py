"""The house: rooms, layers, sizes and words, counted by docs/_house.py from the code itself."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections import Counter
from functools import lru_cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
#: the pairs of rooms of which one imports from the other
MOST_ARROWS = 98
#: what writes into the processes of others: a script's own torch, patched from inside
PATCHES = "measurements.recorder.inside"


@lru_cache
def counter() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_house", ROOT / "docs" / "_house.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def house():
    return counter().read(ROOT)


def test_only_the_doors_lie_flat(house) -> None:
    flat = {path.name for path in (ROOT / "dpsim").glob("*.py")}
    assert flat == {"__init__.py", "__main__.py", "_version.py"}


def test_every_room_has_its_layer_and_says_in_a_sentence_what_it_is(house) -> None:
    assert set(house.rooms) == set(counter().layers(ROOT))
    for name in house.rooms:
        said = (ast.get_docstring(house.trees[name]) or "").splitlines()[0]
        assert re.match(rf"{name.capitalize()}: .*\.$", said), f"{name}: {said}"


def test_imports_go_down_and_are_few(house) -> None:
    assert house.upward() == []
    assert house.cycle() == []
    assert len(house.arrows()) <= MOST_ARROWS


def test_what_is_private_to_a_room_stays_there(house) -> None:
    assert [
        found
        for found in house.across()
        if any(part.startswith("_") for part in f"{found.source}.{found.name or ''}".split("."))
        and found.source != "_version"
    ] == []


def test_modules_classes_and_functions_are_short(house) -> None:
    assert house.too_long() == []


def test_no_limit_is_waived_in_line() -> None:
    for file in [*(ROOT / "dpsim").rglob("*.py"), *(ROOT / "docs").glob("*.py")]:
        assert not re.search(r"noqa:.*(C901|PLR\d+)", file.read_text("utf-8")), file


def test_no_module_keeps_a_memory(house) -> None:
    """What is shared is a value that is passed: no module-level container starts out empty, but
    for the names of records, which are declared once."""
    empty = (ast.Dict, ast.List, ast.Set)
    for name, tree in house.trees.items():
        for node in tree.body:
            value = getattr(node, "value", None)
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(value, empty):
                assert ast.unparse(value) not in ("{}", "[]"), f"{name}:{node.lineno}"
            if isinstance(value, ast.Call) and name != "core.refusals":
                assert ast.unparse(value) not in ("dict()", "list()", "set()"), name


def test_nothing_is_written_behind_a_value_s_back(house) -> None:
    for name, tree in house.trees.items():
        if not name.startswith(PATCHES):
            text = ast.unparse(tree)
            assert not re.search(r"__dict__(\.update\(|\[[^]]*\] = )", text), name


def test_one_word_one_thing(house) -> None:
    """A public class has a name that no other one has."""
    names = Counter(
        node.name
        for tree in house.trees.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert sorted(name for name, count in names.items() if count > 1) == []


def test_the_glossary_s_nouns_are_the_code_s(house) -> None:
    """The table of nouns names a public class and the room that it lives in."""
    page = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    section = page.partition("## Nouns of the code\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", section, flags=re.MULTILINE)
    assert len(rows) > 20
    for noun, room in rows:
        homes = {
            counter().room(name)
            for name, tree in house.trees.items()
            for node in tree.body
            if isinstance(node, ast.ClassDef) and node.name == noun
        }
        assert homes == {room}, noun


def test_the_picture_of_the_rooms_is_current(house) -> None:
    page = (ROOT / "docs" / "design.md").read_text("utf-8")
    assert counter().picture(house) in page, "run: python docs/_house.py --write"
