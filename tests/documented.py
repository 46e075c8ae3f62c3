"""The commands that README and how-tos show."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "tutorial.md",
    *sorted((ROOT / "docs/howto").glob("*.md")),
)
#: what is a command in a block that is no Python and no YAML
_COMMAND = re.compile(r"^(?:\$ )?(dpsim .*)$")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
#: a block that is a file: its first line is a comment with the name
_FILE = re.compile(r"# ([\w./-]+\.(?:yaml|csv|json|txt|py))\n")


class Shown(NamedTuple):
    """A command of a page, as it stands there without its comment."""

    page: Path
    text: str

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text, comments=True)


def shown() -> Iterator[Shown]:
    """All commands, in their pages' order."""
    for page in PAGES:
        for kind, block in _BLOCK.findall(page.read_text("utf-8")):
            if kind in ("", "console", "sh", "bash"):
                yield from (Shown(page, text) for text in _commands(block))


def _commands(block: str) -> Iterator[str]:
    """The commands of a block; one whose quotes are open goes on in the next line."""
    open_ = ""
    for line in re.sub(r"\\\n\s*", " ", block).splitlines():
        found = _COMMAND.match(line.strip())
        if open_ or found:
            open_ += f"\n{line}" if open_ else found[1] if found else ""
            try:
                shlex.split(open_, comments=True)
            except ValueError:
                continue
            yield open_
            open_ = ""


def files(page: Path) -> dict[str, str]:
    """The files that a page gives as blocks; a table has no comments, so not the one with its
    name."""
    blocks = (block for _, block in _BLOCK.findall(page.read_text("utf-8")))
    named = ((found[1], block) for block in blocks if (found := _FILE.match(block)))
    bare = (".csv", ".txt", ".json")
    return {k: text.partition("\n")[2] if k.endswith(bare) else text for k, text in named}
