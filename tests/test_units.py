"""What a quantity in a file means."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsim.core.units import Unit, exact, parse, show

DIMENSIONS = ["s", "B", "B/s", "FLOP", "FLOP/s", "W", "usd/h", "1"]


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("5 us", "s", 5e-06),
        ("5us", "s", 5e-06),
        ("5 µs", "s", 5e-06),
        ("0.1 ms", "s", 1e-4),
        ("0 s", "s", 0.0),
        ("0 ms", "s", 0.0),
        ("3 h", "s", 10800.0),
        ("80 GB", "B", 80e9),
        ("80 GiB", "B", 80.0 * 2**30),
        ("1 kB", "B", 1000.0),
        ("1 KiB", "B", 1024.0),
        ("8 bit", "B", 1.0),
        ("1 Gibit", "B", 2.0**27),
        ("400 Gbit/s", "B/s", 50e9),
        ("400 GB/s", "B/s", 400e9),
        ("10 MiB/ms", "B/s", 10 * 2**20 * 1000.0),
        ("3.8 GFLOP", "FLOP", 3.8e9),
        ("312 TFLOP/s", "FLOP/s", 312e12),
        ("0.7 kW", "W", 700.0),
        ("2.10 usd", "usd/h", 2.1),
        ("2 %", "1", 0.02),
        ("0.02", "1", 0.02),
        ("1e9 B", "B", 1e9),
        (".5 s", "s", 0.5),
        ("  7  ms  ", "s", 0.007),
    ],
)
def test_text_with_a_unit_is_exactly_its_si_value(text: str, dimension: str, value: float) -> None:
    assert parse(text, dimension) == value


def test_bits_are_an_eighth_of_bytes() -> None:
    assert parse("8 Gbit/s", "B/s") * 8 == parse("8 GB/s", "B/s")


def test_gb_is_decimal_and_gib_is_binary() -> None:
    assert parse("1 GB", "B") == 10**9
    assert parse("1 GiB", "B") == 2**30


@pytest.mark.parametrize("dimension", [d for d in DIMENSIONS if d != "1"])
def test_a_number_without_unit_is_refused_with_an_example(dimension: str) -> None:
    with pytest.raises(ValueError, match=r"'25' has no unit; write for example '.+ .+'"):
        parse("25", dimension)


@pytest.mark.parametrize("dimension", [d for d in DIMENSIONS if d != "1"])
@pytest.mark.parametrize("value", [25, 25.0])
def test_a_bare_number_in_a_file_is_refused(dimension: str, value: float) -> None:
    with pytest.raises(ValueError, match="has no unit; write for example"):
        Unit(dimension).take(value, file=True)


def test_a_bare_number_from_python_is_si() -> None:
    assert Unit("s").take(0.25, file=False) == 0.25


def test_a_bare_number_is_a_fraction_even_in_a_file() -> None:
    assert Unit("1").take(0.02, file=True) == 0.02


@pytest.mark.parametrize("value", [True, None, [], {}, b"5 us"])
def test_what_is_no_quantity_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        Unit("s").take(value, file=False)


def test_a_unit_of_another_dimension_is_named() -> None:
    with pytest.raises(ValueError, match="'5 us' is in s, where B/s is needed"):
        parse("5 us", "B/s")
    with pytest.raises(ValueError, match="'80 GB' is in B, where B/s is needed"):
        parse("80 GB", "B/s")


@pytest.mark.parametrize(
    ("text", "dimension", "hint"),
    [
        ("400 Gbps", "B/s", "Gbit/s"),
        ("400 Gb/s", "B/s", "Gbit/s"),
        ("50 GBps", "B/s", "GB/s"),
        ("312 TFLOPS", "FLOP/s", "TFLOP/s"),
        ("5 usec", "s", "us"),
        ("5 seconds", "s", "s"),
        ("4 KB", "B", "kB"),
    ],
)
def test_a_near_miss_names_the_unit_that_was_meant(text: str, dimension: str, hint: str) -> None:
    with pytest.raises(ValueError, match=f"write '{hint}', not"):
        parse(text, dimension)


@pytest.mark.parametrize(
    ("text", "dimension", "said"),
    [
        ("3y", "s", "'3y': write '1095 d', not 'y'"),
        ("1.5 weeks", "s", "'1.5 weeks': write '10.5 d', not 'weeks'"),
        ("2 hours", "s", "'2 hours': write 'h', not 'hours'"),
        ("0.41", "s", "has no unit; write for example '5 us', '400 ms' or '30 d'"),
        ("3 q", "s", "(units: s, ms, us, µs, ns, min, h, d)"),
        ("1T", "1", "'1T': write '1e12', not 'T'"),
        ("1.5 B", "1", "'1.5 B': write '1.5e9', not 'B'"),
    ],
)
def test_what_is_shown_fits_what_was_meant(text: str, dimension: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        parse(text, dimension)


@pytest.mark.parametrize("text", ["5 parsec", "1e s", "0x10 s", "1,5 s", "5 US"])
def test_a_unit_nobody_knows_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="unknown unit"):
        parse(text, "s")


@pytest.mark.parametrize(
    "text", ["nan s", "inf s", "", "s", "five s", "--5 s", "e5 s", "5 us" * 40]
)
def test_text_that_is_no_number_with_a_unit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a number with a unit"):
        parse(text, "s")


@pytest.mark.parametrize("text", ["1e400 s", "-1e400 s", "9e999999 h", "1e99999999999999999999 s"])
def test_a_number_beyond_floats_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is out of range"):
        parse(text, "s")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="is not finite"):
        Unit("s").take(value, file=False)


def test_an_integer_beyond_floats_is_refused() -> None:
    with pytest.raises(ValueError, match="out of range"):
        Unit("1").take(10**400, file=True)


def test_the_range_is_stated() -> None:
    with pytest.raises(ValueError, match=r"-1 s is not in 0 … 1e\+09 s"):
        Unit("s", high=1e9).take("-1 s", file=True)
    with pytest.raises(ValueError, match=r"0 GB/s is not in 0 \(excluded\) … 1e\+18 B/s"):
        Unit("B/s", high=1e18, above=True).take("0 GB/s", file=True)


def test_minus_zero_is_zero() -> None:
    assert math.copysign(1.0, Unit("s").take("-0 s", file=True)) == 1.0


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [
        (0.02345, "s", "23.45 ms"),
        (0.0, "s", "0 s"),
        (90000.0, "s", "1.042 d"),
        (0.99996, "s", "1 s"),
        (-0.002, "s", "-2 ms"),
        (50e9, "B/s", "50 GB/s"),
        (312e12, "FLOP/s", "312 TFLOP/s"),
        (0.0213, "1", "2.13 %"),
        (700.0, "W", "700 W"),
    ],
)
def test_show_is_for_people(value: float, dimension: str, text: str) -> None:
    assert show(value, dimension) == text


@pytest.mark.parametrize("dimension", DIMENSIONS)
@settings(deadline=None)
@given(value=st.floats(min_value=0, max_value=1e30))
def test_exact_text_reads_back_to_the_same_float(dimension: str, value: float) -> None:
    text = exact(value, dimension)
    assert (parse(text, dimension) if isinstance(text, str) else text) == value


@settings(deadline=None)
@given(
    text=st.text(max_size=80) | st.from_regex(r"[0-9.eE+-]{1,12} ?[a-zA-Z/%µ]{0,8}"),
    dimension=st.sampled_from(DIMENSIONS),
)
def test_any_text_is_a_finite_number_or_refused_in_one_line(text: str, dimension: str) -> None:
    try:
        assert math.isfinite(parse(text, dimension))
    except ValueError as error:
        assert "\n" not in str(error)
        assert len(str(error)) < 1000


@settings(deadline=None)
@given(
    value=st.floats(min_value=1e-12, max_value=1e15),
    dimension=st.sampled_from(["s", "B", "B/s", "FLOP", "FLOP/s"]),
)
def test_show_keeps_four_digits(value: float, dimension: str) -> None:
    number, _, unit = show(value, dimension).partition(" ")
    assert parse(f"{number.replace(',', '')} {unit}", dimension) == pytest.approx(value, rel=6e-4)


@pytest.mark.parametrize(
    ("dimension", "needed"), [("s", "how long, for example '30 d'"), ("1", "a number")]
)
def test_a_date_is_no_amount(dimension: str, needed: str) -> None:
    with pytest.raises(ValueError, match=f"'2026-12-24' is a date; write {needed}"):
        parse("2026-12-24", dimension)


def test_an_example_is_one_that_the_field_accepts() -> None:
    """A share, a factor above 1 and a count have others; what is shown is taken."""
    for mark, example in (
        (Unit("1", high=1.0), "2 %"), (Unit("1", low=1.0, high=10.0), "1.5"),
        (Unit("1", low=1.0, high=1e18, example="1e12"), "1e12"),
        (Unit("1/s", example="16/s"), "16/s"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"write for example '{example}'"):
            mark.take("abc", True)
        assert mark.take(example, True) > 0
        assert all(mark.take(shown, True) > 0 for shown in mark.json_schema()["examples"])
