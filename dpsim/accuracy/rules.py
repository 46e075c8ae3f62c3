"""How words of tables are applied: the first entry, meaning or rule whose words a text has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator

from dpsim.core.record import Text, record


def _joined(value: Any) -> Any:
    return "|".join(value) if isinstance(value, list) else value


Words = Annotated[re.Pattern[str], BeforeValidator(_joined)]
Texts = tuple[Text, ...]
ANY = re.compile("")  # words that every text has


@record
class Named:
    """Something with the words that tell it."""

    words: Words = ANY


E = TypeVar("E", bound=Named)
M = TypeVar("M")


def first(entries: Iterable[E], text: str) -> E | None:
    """The first of `entries` whose words `text` has."""
    return next((entry for entry in entries if entry.words.search(text)), None)


def meaning(words: Mapping[M, Words], text: str) -> M | None:
    """The first meaning in `words` whose words `text` has."""
    return next((found for found, told in words.items() if told.search(text)), None)


@record
class KeyRule(Named):
    """Keys of a scenario that words set.

    beside, unless  words that the text must have too, and must not have
    columns         other columns of the row, and words that they must have
    note            what there is to tell about it
    """

    beside: Words = ANY
    unless: Words | None = None
    columns: dict[str, Words] = field(default_factory=dict)
    keys: dict[str, str | int | bool]
    note: Text = ""


def told(
    rules: Iterable[KeyRule], text: str, column: Callable[[str], str] = str
) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Keys and notes of each of `rules` that applies to `text`; `column` gives the text of a column
    of the row.  A group of the words that has a name is a key too, a number."""
    for rule in rules:
        found = rule.words.search(text)
        if not found or not rule.beside.search(text) or (rule.unless and rule.unless.search(text)):
            continue
        if all(words.search(column(name).lower()) for name, words in rule.columns.items()):
            named = {key: int(value) for key, value in found.groupdict().items() if value}
            yield {**rule.keys, **named}, [rule.note] if rule.note else []
