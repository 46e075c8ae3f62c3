"""Counts and draws the house: the rooms of dpsim, and what they import from one another.

    python docs/_house.py             prints the counts
    python docs/_house.py ROOT        of another checkout (an older one, to compare)
    python docs/_house.py --picture   prints the rooms as a mermaid picture
    python docs/_house.py --write     puts that picture into docs/design.md
    python docs/_house.py --check     exits with 1 if the picture there is not what would be written

A room is a folder, or a module that lies flat, in ``dpsim/``.  An arrow is a pair of rooms of which
one imports from the other, wherever the import stands.  A name across is what a room imports from
another one by name, however many of its modules do.  Lines of code are lines that hold code: no
blank ones, comments or docstrings.
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DESIGN = ROOT / "docs" / "design.md"
BEGIN, END = "<!-- rooms: docs/_house.py --write -->\n", "<!-- end of rooms -->"
#: not rooms: they only say what the package is and how it starts
DOORS = ("__init__", "__main__", "_version")
#: what no module, class and function may exceed [lines]
LIMITS = {"module": 400, "class": 250, "function": 40}


@dataclass(frozen=True)
class Import:
    """`module` (dotted, without "dpsim.") takes `name` from module `source`; None: all of it."""

    module: str
    source: str
    name: str | None


@dataclass(frozen=True)
class House:
    """All modules of a checkout: dotted name -> file, parsed."""

    root: Path
    files: dict[str, Path]
    trees: dict[str, ast.Module]

    @property
    def rooms(self) -> tuple[str, ...]:
        return tuple(sorted({room(name) for name in self.files} - set(DOORS) - {""}))

    def imports(self) -> Iterator[Import]:
        for module, tree in self.trees.items():
            for source, name in _imported(tree):
                whole = f"{source}.{name}".removeprefix("dpsim").removeprefix(".")
                source = source.removeprefix("dpsim").removeprefix(".")
                found = Import(module, whole, None) if whole in self.files else None
                yield found or Import(module, source, name)

    def across(self) -> list[Import]:
        """Imports of one room from another one, each once."""
        rooms = set(self.rooms)
        found = {
            (i.module, i.source, i.name)
            for i in self.imports()
            if {room(i.module), room(i.source)} <= rooms and room(i.module) != room(i.source)
        }
        return [Import(*key) for key in sorted(found, key=str)]

    def arrows(self) -> dict[tuple[str, str], int]:
        """(room, room it imports from) -> names that it takes."""
        found: dict[tuple[str, str], int] = {}
        for one in self.across():
            pair = room(one.module), room(one.source)
            found[pair] = found.get(pair, 0) + 1
        return found

    def cycle(self) -> list[str]:
        """Rooms that import one another in a circle; empty where there is none."""
        graph: dict[str, set[str]] = {}
        for upper, lower in self.arrows():
            graph.setdefault(upper, set()).add(lower)
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            return [str(name) for name in error.args[1]]
        return []

    def upward(self) -> list[tuple[str, str]]:
        """Arrows from a lower room to a higher one."""
        place = {name: k for k, name in enumerate(layers(self.root))}
        return [(a, b) for a, b in self.arrows() if place.get(a, -1) > place.get(b, len(place))]

    def too_long(self) -> list[tuple[str, str, int]]:
        """(kind, name, lines) of what exceeds LIMITS."""
        return [
            (kind, name, lines)
            for module, tree in self.trees.items()
            for kind, name, lines in _sizes(module, tree, self.files[module])
            if lines > LIMITS[kind]
        ]


def read(root: Path) -> House:
    """The checkout at `root`."""
    files = {}
    for path in sorted((root / "dpsim").rglob("*.py")):
        parts = path.relative_to(root / "dpsim").with_suffix("").parts
        if parts[0] != "data":
            kept = parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts
            files[".".join(kept)] = path
    return House(root, files, {n: ast.parse(p.read_text("utf-8")) for n, p in files.items()})


def room(module: str) -> str:
    """The room that a module lies in: "play" of "play.event"."""
    return module.partition(".")[0]


def layers(root: Path) -> tuple[str, ...]:
    """The rooms from top to bottom, as pyproject.toml has them."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    for contract in project["tool"]["importlinter"]["contracts"]:
        if contract["type"] == "layers":
            return tuple(layer.strip("() ") for layer in contract["layers"])
    return ()


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dpsim":
            yield from ((str(node.module), alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("dpsim."):
                    parent, _, name = alias.name.rpartition(".")
                    yield parent, name


def _sizes(module: str, tree: ast.Module, path: Path) -> Iterator[tuple[str, str, int]]:
    yield "module", module, len(path.read_text("utf-8").splitlines())
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            kind = "class" if isinstance(node, ast.ClassDef) else "function"
            yield kind, f"{module}.{node.name}", (node.end_lineno or 0) - node.lineno + 1


def code_lines(path: Path, tree: ast.Module) -> int:
    """Lines of `path` that hold code."""
    quiet = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    quiet |= {tokenize.ENCODING, tokenize.ENDMARKER}
    held: set[int] = set()
    text = path.read_text("utf-8")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in quiet:
            held.update(range(token.start[0], token.end[0] + 1))
    for node in _documented(tree):
        if ast.get_docstring(node) is not None:
            first = node.body[0]
            held.difference_update(range(first.lineno, (first.end_lineno or 0) + 1))
    return len(held)


def _documented(
    tree: ast.Module,
) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def documented(trees: Iterable[ast.Module]) -> tuple[int, int]:
    """How many public modules, classes and functions have a docstring, and how many there are."""
    nodes = [
        node
        for tree in trees
        for node in _documented(tree)
        if isinstance(node, ast.Module) or not node.name.startswith("_")
    ]
    return sum(ast.get_docstring(node) is not None for node in nodes), len(nodes)


def counts(house: House) -> dict[str, object]:
    """What the house is measured by."""
    code = sum(code_lines(house.files[name], tree) for name, tree in house.trees.items())
    have, all_ = documented(house.trees.values())
    whole = [path.read_text("utf-8") for path in house.files.values()]
    flat = [n for n in house.files if "." not in n and house.files[n].name != "__init__.py"]
    return {
        "rooms": len(house.rooms),
        "modules flat in dpsim": len(flat) + 1,
        "modules": len(house.files),
        "arrows between rooms": len(house.arrows()),
        "arrows upwards": len(house.upward()),
        "rooms in a cycle": len(house.cycle()),
        "names across rooms": len({(room(i.module), i.source, i.name) for i in house.across()}),
        "lines of code": code,
        "lines in all": sum(len(text.splitlines()) for text in whole),
        "public definitions with a docstring": f"{have} of {all_} ({have / all_:.1%})",
        "dict[str, Any]": sum(text.count("dict[str, Any]") for text in whole),
        "beyond the limits of length": len(house.too_long()),
    }


def picture(house: House) -> str:
    """The rooms from top to bottom with their sentence, and the arrows, as mermaid.

    Arrows that follow from others are left out (a → c where a → b → c), and those to `core`, which
    every room uses."""
    arrows = {pair for pair in house.arrows() if pair[1] != "core"}
    lines = ["```mermaid", "flowchart TD"]
    for name in layers(house.root):
        sentence = (ast.get_docstring(house.trees[name]) or "").splitlines()[0]
        said = sentence.partition(": ")[2] or sentence
        lines.append(f'    {name}["<b>{name}</b><br>{said.rstrip(".").replace(chr(34), "")}"]')
    lines += [f"    {a} --> {b}" for a, b in sorted(_reduced(arrows))]
    return "\n".join([*lines, "```", ""])


def _reduced(arrows: set[tuple[str, str]]) -> set[tuple[str, str]]:
    below: dict[str, set[str]] = {}
    for upper, lower in arrows:
        below.setdefault(upper, set()).add(lower)

    def reach(start: str) -> set[str]:
        found = set(below.get(start, ()))
        return found.union(*(reach(name) for name in found))

    return {(a, b) for a, b in arrows if not any(b in reach(c) for c in below[a] - {b})}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("root", nargs="?", type=Path, default=ROOT)
    for flag in ("picture", "write", "check"):
        parser.add_argument(f"--{flag}", action="store_true")
    given = parser.parse_args()
    house = read(given.root)
    if given.picture:
        print(picture(house), end="")
    elif given.write or given.check:
        page = DESIGN.read_text("utf-8")
        head, _, rest = page.partition(BEGIN)
        new = head + BEGIN + picture(house) + END + rest.partition(END)[2]
        if given.write:
            DESIGN.write_text(new, "utf-8")
        return int(given.check and new != page)
    else:
        for name, value in counts(house).items():
            print(f"{name:38} {value}")
        for kind, name, lines in sorted(house.too_long(), key=lambda one: -one[2]):
            print(f"  {kind} {name}: {lines} lines")
        for upper, lower in house.upward():
            print(f"  upwards: {upper} -> {lower}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
