"""The documents: current, linked, and true to what the code and the tests are called."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import shlex
import subprocess
from functools import lru_cache
from pathlib import Path
from types import ModuleType

import documented
import pytest
import typer

from dpsim.cli.app import app
from dpsim.machines.machine import device_names, machine_names

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "validation").rglob("*.md")])
ASSUMPTIONS = DOCS / "assumptions.md"
TUTORIAL = DOCS / "tutorial.md"
# put together here, so that this file does not hold what it looks for
PRIVATE = re.compile(r"(?<![\w.$}-])/" + r"work\b|\.\./" + r"shared\b")


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@lru_cache
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "_generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_scenario_reference_is_current() -> None:
    assert read(DOCS / "scenario.md") == generator().page(), "run: python docs/_generate.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", read(page), flags=re.DOTALL)
    broken = [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if not leads(page, target)]
    assert not broken


def leads(page: Path, target: str) -> bool:
    if re.match(r"[a-z]+:", target):
        return True
    name, _, section = target.partition("#")
    file = page.parent / name if name else page
    if not file.exists():
        return False
    headings = re.findall(r"^#+ (.*)$", read(file), flags=re.MULTILINE) if section else []
    return not section or section in {generator().anchor(heading) for heading in headings}


def test_assumptions_are_numbered_without_gaps() -> None:
    numbers = [int(n) for n in re.findall(r"^## A(\d+)\b", read(ASSUMPTIONS), flags=re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))


def test_every_assumption_that_the_code_mentions_exists() -> None:
    known = set(re.findall(r"^## (A\d+)\b", read(ASSUMPTIONS), flags=re.MULTILINE))
    for file in (ROOT / "dpsim").rglob("*.py"):
        assert set(re.findall(r"\bA\d{1,2}\b", read(file))) <= known, file


def test_every_assumption_says_what_how_far_and_how_checked() -> None:
    _, *sections = re.split(r"^## (?=A\d)", read(ASSUMPTIONS), flags=re.MULTILINE)
    for section in sections:
        for part in ("**Source.**", "**Valid.**", "**Test.**"):
            assert part in section, f"{section.splitlines()[0]}: no {part}"


def test_every_test_that_a_page_names_exists() -> None:
    for page in PAGES:
        for file, name in re.findall(r"`(tests/\w+\.py)::(\w+)`", read(page)):
            assert f"def {name}(" in read(ROOT / file), f"{page.name}: {file}::{name}"


def test_every_file_that_a_page_names_exists() -> None:
    """Paths in backticks that start with a folder of the checkout."""
    top = "dpsim|docs|tests|scenarios|topologies|validation|benchmarks"
    for page in PAGES:
        for name in re.findall(rf"`((?:{top})/[\w./-]+)`", read(page)):
            made_up = "NAME" in name or f"`{name}`:" in read(page)  # a recipe's own new file
            assert (ROOT / name).exists() or made_up, f"{page.name}: {name}"


def test_every_public_module_has_a_docstring() -> None:
    for file in (ROOT / "dpsim").rglob("*.py"):
        hidden = file.name.startswith("_") and not file.name.startswith("__")
        assert hidden or ast.get_docstring(ast.parse(read(file))), file


def test_no_file_names_the_machine_it_was_written_on() -> None:
    found = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        pytest.skip("not a git checkout")
    for name in filter(None, found.stdout.split("\0")):
        file = ROOT / name
        if file.is_file() and file.stat().st_size < 1_000_000:
            text = file.read_bytes().decode("utf-8", errors="ignore")
            assert not PRIVATE.search(text), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_imports_is_there(page: Path) -> None:
    """From dpsim's own modules; what a page itself adds is imported by nobody."""
    for block in re.findall(r"```python\n(.*?)```", read(page), flags=re.DOTALL):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dpsim"):
                module = importlib.import_module(str(node.module))
                for name in (one.name for one in node.names):
                    inside = f"{node.module}.{name}"
                    there = hasattr(module, name) or importlib.util.find_spec(inside)
                    assert there, f"{page.name}: there is no {inside}"


def commands() -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", read(TUTORIAL), flags=re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


@pytest.mark.parametrize("command", commands())
def test_every_command_of_the_tutorial_runs(  # type: ignore[no-untyped-def]
    command: str, cli, tmp_path: Path
) -> None:
    """Files of the tutorial are the YAML blocks that begin with ``# NAME.yaml``."""
    for block in re.findall(r"```yaml\n(.*?)```", read(TUTORIAL), flags=re.DOTALL):
        name = re.match(r"# ([\w-]+\.yaml)\n", block)
        if name:
            (tmp_path / name[1]).write_text(block, encoding="utf-8")
    words = shlex.split(command, comments=True)
    assert words[0] == "dpsim"
    code, _, err = cli(*words[1:])
    refused = "# refused" in command
    assert code == (2 if refused else 0), err


def table(text: str) -> list[list[float]]:
    """The numbers of a printed table of ranks, line by line."""
    lines = (line for line in text.splitlines() if re.match(r" +\d+ +\d+ +", line))
    return [[float(n.replace(",", "")) for n in re.findall(r"\d[\d,.]*", one)] for one in lines]


def test_the_readme_counts_what_there_is() -> None:
    said = re.search(r"\| machines \| (\d+), .* of (\d+) devices", read(ROOT / "README.md"))
    assert said is not None
    assert [int(n) for n in said.groups()] == [len(machine_names()), len(device_names())]


def test_the_readme_shows_what_quickstart_prints(cli) -> None:  # type: ignore[no-untyped-def]
    """To 1 %: what rounding and other versions of numpy leave."""
    _, printed, _ = cli("run", "quickstart")
    shown = table(read(ROOT / "README.md"))
    assert len(shown) == 6
    for line, own in zip(shown, table(printed), strict=True):
        assert line == pytest.approx(own, rel=0.01)


def test_every_command_that_a_page_shows_has_the_options_that_it_names() -> None:
    """`tests/campaigns/commands.py` runs them all."""
    group = typer.main.get_command(app())
    every = list(documented.shown())
    assert len(every) > 80
    for one in every:
        _, name, *words = one.words
        if name.startswith("-"):
            continue
        assert name in group.commands, f"{one.page.name}: {one.text}"
        known = {text for param in group.commands[name].params for text in param.opts} | {"-h"}
        own = words[: words.index("--")] if "--" in words else words
        own = own[: own.index("|")] if "|" in own else own
        used = {word.partition("=")[0] for word in own if re.match(r"-{1,2}[a-z]", word)}
        assert used <= known, f"{one.page.name}: {one.text}"


def test_every_file_that_a_shown_command_reads_is_there_or_is_a_readers() -> None:
    """Given by the page, written by a command before it, a sample, or a reader's own."""
    samples = {*documented.WRITTEN, *documented.OWN, *documented.READERS}
    every = list(documented.shown())
    for page in documented.PAGES:
        there = samples | set(documented.files(page))
        for one in (each for each in every if each.page == page):
            lacks = set(documented.inputs(one.words)) - there
            assert not lacks or "# refused" in one.text, f"{page.name}: {one.text}"
            there |= set(documented.outputs(one.words))
    for sample in documented.OWN.values():
        assert (ROOT / sample).is_file()
