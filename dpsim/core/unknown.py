"""Names that nothing has: what to answer whoever writes one.

``unknown.yaml`` says what is not modelled, under the names by which it is asked for, and what other
words mean.  What neither knows is looked for among the names that there are: first one that is
part of the other, then by spelling.

>>> near("h200-sxm", ["h100-sxm", "h200"])
['h200']
>>> sentence("nodes", ["cluster", "model"])
"unknown key; did you mean 'cluster.nodes'?"
>>> not_modelled("DLRM").split(" (")[0]
"'DLRM' is not modelled"
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from dpsim.core import yamlfile
from dpsim.core.record import Text, build, record

#: letters from which on the beginning of a name counts
_LONG = 5
#: likeness in spelling from which on nothing else is meant
_SURE = 0.85
#: names that are proposed at most
_MOST = 4


@record
class Absent:
    """Something that is not modelled: the names it is asked for by, what it would take, and what
    there is to do today."""

    names: tuple[Text, ...]
    because: Text
    instead: Text


@lru_cache(maxsize=1)
def missing() -> Mapping[str, Absent]:
    """All that is not modelled, by what people call it."""
    return {what: build(Absent, entry) for what, entry in _file()["not modelled"].items()}


def not_modelled(name: str) -> str:
    """The sentence that says that `name` is not modelled, why, and what to do instead; "" where
    nothing is known of it."""
    if _plain(name) in _meanings():
        return ""
    return _absent(name, {_plain(name)}) or _absent(name, _beginnings(name))


def _absent(name: str, asked: set[str]) -> str:
    """The sentence about `name` if it is, or begins as, one of the names `asked`."""
    for what, entry in missing().items():
        if any(_plain(known) in asked for known in entry.names):
            shown = f"{name[:60]!r} is not modelled ({what}: {entry.because})"
            return f"{shown}; {entry.instead}"
    return ""


def _beginnings(name: str) -> set[str]:
    """The beginnings of `name`, as far as words go, that are long enough to tell something."""
    ends = (found.end() for found in re.finditer(r"[A-Za-z]+", name))
    return {begin for end in ends if len(begin := _plain(name[:end])) >= _LONG}


def near(name: str, known: Iterable[str]) -> list[str]:
    """The names among `known` that `name` may mean, or is spelt like, the likeliest first."""
    names = list(known)
    return by_meaning(name, names) or difflib.get_close_matches(name, names, n=1)


def by_meaning(name: str, known: Iterable[str]) -> list[str]:
    """The names among `known` that are other words for `name`, or hold it, or that it holds."""
    names = list(known)
    name = re.sub(r"^\d+x(?=[A-Za-z])", "", name)  # 8xA100
    meant = [found for word in _meanings().get(_plain(name), ()) if (found := _there(word, names))]
    if meant:
        return meant[:1]
    asked = _plain(name)
    if same := [other for other in names if _plain(other) == asked]:
        return same[:1]
    parts = [other for other in names if _part(asked, other)]
    parts += [other for other in names if len(other) >= 3 and _begins(asked, _plain(other))]
    spelt = difflib.get_close_matches(name, parts, n=1, cutoff=_SURE)
    return spelt or list(dict.fromkeys(parts))[:_MOST]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The question that names what is near; "" where nothing is."""
    found = near(name, known)
    shown = (f"{name!r}{sep}{more}" for name, sep, more in (one.partition(" (") for one in found))
    return f"did you mean {' or '.join(shown)}?" if found else ""


def sentence(name: str, known: Iterable[str], what: str = "unknown key") -> str:
    """The sentence for a name that is none of `known`: that it is not modelled, or what is near."""
    names = list(known)
    if not by_meaning(name, names):
        spelt = difflib.get_close_matches(name, names, 1, _SURE)
        said = _absent(name, {_plain(name)}) if spelt else not_modelled(name)
        if said:
            return said
    hint = did_you_mean(name, names) or f"known here: {', '.join(sorted(names)) or 'none'}"
    return f"{what}; {hint}"


def example(section: str) -> str:
    """`section` with its usual key, as YAML, to be shown to whoever writes none; "" where none is
    known."""
    return str(_file()["sections"].get(section, ""))


def command(name: str) -> str:
    """What to type instead of the command `name`."""
    known = {_plain(word): typed for word, typed in _file()["commands"].items()}
    return f"it is: dpsim {known.get(_plain(name), '--help')}"


def option(name: str) -> str:
    """The same for an option of a command that takes --set; "" where nothing is known."""
    keys = [word for word in _meanings().get(_plain(name), ()) if "." in word]
    return f"it is a key: --set {keys[0]}=…" if keys else ""


def _there(word: str, names: list[str]) -> str:
    """The meaning `word` as it is written where there are `names`; "" where it is not there.

    A key says its section where that is one of them, and a name what goes with it."""
    first, _, rest = word.partition(", ")
    section, _, key = first.partition(".")
    if section in names:
        return word if not rest else f"{first} ({rest})"
    return key if key in names else ""


def _part(asked: str, other: str) -> bool:
    """Whether `asked` stands in `other` from the beginning of a word or number on; of a letter and
    a digit, as of kinds of cloud machines, at its very beginning."""
    if len(asked) < 3:
        own = re.fullmatch(r"[a-z]\d", asked)
        return own is not None and re.match(rf"{asked}(?!\d)", other.lower()) is not None
    starts = (found.start() for found in re.finditer(r"[a-z]+|\d+", other.lower()))
    return any(_plain(other[at:]).startswith(asked) for at in starts)


def _begins(asked: str, other: str) -> bool:
    """Whether `asked` begins with `other`, and not in the middle of a number."""
    return asked.startswith(other) and not re.match(r"\d\d", asked[len(other) - 1 :])


def _plain(name: str) -> str:
    """`name` without what does not count."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


@lru_cache(maxsize=1)
def _meanings() -> Mapping[str, tuple[str, ...]]:
    return {
        _plain(name): tuple(found) if isinstance(found, list) else (found,)
        for name, found in _file()["means"].items()
    }


@lru_cache(maxsize=1)
def _file() -> Mapping[str, Any]:
    path = Path(__file__).with_suffix(".yaml")
    data: Mapping[str, Any] = yamlfile.load(path, path.name)[0]
    return data
