"""Tables on the terminal: words stay whole at every width, and money is short."""

from __future__ import annotations

import io
import itertools
import re

import pytest
from rich.console import Console
from typer.testing import CliRunner

from dpsim.cli.app import app
from dpsim.core.units import dollars
from dpsim.planning.wanted import parse_wanted
from dpsim.report.fields import told_apart
from dpsim.report.table import Columns, put
from dpsim.report.text import between

FOUND: Columns = (
    ("ranks", "setting", "90 % interval", "cost", "bottleneck"),
    [
        ("512", "backend=nccl inter_node_kind=roce accumulation=4", "26–43 s", "18.02 M usd",
         "network between nodes"),
        ("1,024", "backend=ideal inter_node_kind=infiniband accumulation=16", "25.1–38 s",
         "17.4 M usd", "compute"),
    ],
)  # fmt: skip
LEFT = ("setting", "bottleneck")
DROPPED = ("90 % interval", "bottleneck")


def printed(width: int, found: Columns = FOUND) -> str:
    out = io.StringIO()
    put(Console(file=out, width=width), found, LEFT, DROPPED)
    return out.getvalue()


@pytest.mark.parametrize("width", range(50, 161, 5))
def test_words_are_never_broken(width: int) -> None:
    """What is on the screen is a word of a header or of a cell, whole."""
    headers, rows = FOUND
    words = {word for text in itertools.chain(headers, *rows) for word in text.split()}
    shown = [word for word in printed(width).split() if set(word) != {"─"}]
    assert set(shown) <= words
    assert all(len(line) <= width for line in printed(width).splitlines())


def test_columns_go_in_their_order_where_there_is_no_room() -> None:
    def headers(width: int) -> list[bool]:
        text = printed(width)
        return [name in text for name in ("interval", "bottleneck", "cost")]

    found = [headers(width) for width in (160, 80, 60)]
    assert found == [[True, True, True], [False, True, True], [False, False, True]]


def test_numbers_stay_in_one_line() -> None:
    for width in (60, 80, 160):
        assert "18.02 M usd" in printed(width)


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0.0, "0.00 usd"), (0.01234567, "0.01235 usd"), (2.5, "2.50 usd"), (999.994, "999.99 usd"),
        (999.999, "1,000 usd"), (142649.2, "142,600 usd"), (999_949.0, "999,900 usd"),
        (999_951.0, "1 M usd"), (11_242_998.68, "11.24 M usd"), (5.6712e9, "5,671 M usd"),
        (3e12, "3,000,000 M usd"),
    ],
)  # fmt: skip
def test_money_has_four_digits_and_no_cents_of_thousands(amount: float, text: str) -> None:
    assert dollars(amount) == text


def test_an_interval_has_its_unit_once_only_where_both_ends_have_it() -> None:
    assert between(dollars(9.881e6), dollars(1.543e7)) == "9.881–15.43 M usd"
    assert between(dollars(9.9e5), dollars(1.02e6)) == "990,000 usd–1.02 M usd"


def test_a_limit_is_said_as_it_was_asked() -> None:
    assert str(parse_wanted("cost_usd<=12345678 usd")) == "cost_usd <= 12,345,678 usd"
    assert str(parse_wanted("cost_usd<=3.5 usd")) == "cost_usd <= 3.50 usd"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["37.4527 Gbit/s", "37.8424 Gbit/s", "37.8773 Gbit/s", "37.88 Gbit/s"],
         ["37.453 Gbit/s", "37.842 Gbit/s", "37.877 Gbit/s", "37.88 Gbit/s"]),
        (["25.2982 us", "8 us", "80 us"], ["25.3 us", "8 us", "80 us"]),
        (["1024", "1025"], ["1,024", "1,025"]),
        (["8 us", "8 ms"], ["8 us", "8 ms"]),
        (["nccl", "ideal"], ["nccl", "ideal"]),
    ],
)  # fmt: skip
def test_values_have_the_digits_that_tell_them_apart(given: list[str], said: list[str]) -> None:
    assert told_apart(given) == said


@pytest.mark.parametrize("command", [
    ("collective", "all_reduce", "--cluster", "dgx-h100", "--sizes", "1MiB:4MiB"),
    ("show", "machines"), ("show", "schedules"),
], ids=" ".join)  # fmt: skip
def test_commands_put_their_tables_so(command: tuple[str, ...]) -> None:
    """On 80 columns the words are those of 300."""

    def words(width: int) -> set[str]:
        done = CliRunner(env={"COLUMNS": str(width)}).invoke(app(), [*command])
        assert done.exit_code == 0, done.output
        return set(re.sub("─+", "", done.stdout).split())

    assert words(80) <= words(300)
