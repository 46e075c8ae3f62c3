"""What a file may hold, and where its errors point."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsim.core.record import Refused
from dpsim.core.yamlfile import FileRefused, dump_yaml, load, loads, located


def refusal(text: str) -> str:
    with pytest.raises(FileRefused) as caught:
        loads(text, "x.yaml")
    return str(caught.value)


def test_data_and_the_line_of_every_key_and_item() -> None:
    text = "# a comment\nmodel:\n  layers:\n  - {name: p0}\n  - name: p1\ncluster: {nodes: 16}\n"
    data, lines = loads(text, "x.yaml")
    assert data == {"model": {"layers": [{"name": "p0"}, {"name": "p1"}]}, "cluster": {"nodes": 16}}
    assert lines == {
        (): 2,
        ("model",): 2,
        ("model", "layers"): 3,
        ("model", "layers", 0): 4,
        ("model", "layers", 0, "name"): 4,
        ("model", "layers", 1): 5,
        ("model", "layers", 1, "name"): 5,
        ("cluster",): 6,
        ("cluster", "nodes"): 6,
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e9", 1e9),
        ("1.0e-6", 1e-6),
        ("1e-6", 1e-6),
        ("5E-6", 5e-6),
        (".5", 0.5),
        ("2.", 2.0),
        ("-3", -3),
        ("+3", 3),
        ("0", 0),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("", None),
        # Traps of YAML 1.1: all of these are text.
        ("no", "no"),
        ("NO", "NO"),
        ("yes", "yes"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("1:30", "1:30"),
        ("0x10", "0x10"),
        ("0o17", "0o17"),
        ("1_000", "1_000"),
        ("2026-01-02", "2026-01-02"),
        ("5 us", "5 us"),
        ("=", "="),
        ("'1e9'", "1e9"),
        ('"true"', "true"),
        ("|\n  2", "2"),
    ],
)
def test_scalars_follow_the_yaml_1_2_core_schema(text: str, value: Any) -> None:
    found = loads(f"a: {text}", "x.yaml")[0]["a"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("text", ["0400", "-007", "00.5", "01e3"])
def test_a_leading_zero_is_refused(text: str) -> None:
    assert refusal(f"\na: {text}").startswith(f"x.yaml:2: a: '{text}' starts with 0")


@pytest.mark.parametrize("text", [".nan", ".NaN", ".inf", "-.INF", "NaN", "Infinity", "-Infinity"])
def test_what_is_not_finite_is_refused(text: str) -> None:
    assert refusal(f"a:\n- {text}") == f"x.yaml:2: a[0]: {text!r} is not finite"


def test_numbers_out_of_range_are_refused() -> None:
    assert loads("9" * 30, "x.yaml")[0] == 10**30 - 1
    assert "has more than 30 digits" in refusal("9" * 31)
    assert refusal("a: 1e999") == "x.yaml:1: a: '1e999' is out of range"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "x.yaml:3: a: is given twice; first on line 1"),
        ("m:\n  k: 1\n  'k': 2", "x.yaml:3: m.k: is given twice; first on line 2"),
        ('3: 1\n"3": 2', "x.yaml:2: 3: is given twice; first on line 1"),
        ("a: 1\n---\nb: 2", "x.yaml:2: a second document starts here; only one is accepted"),
        ("a: !!int 3", "x.yaml:1: a: tags (!) are not accepted"),
        ("a: !!python/object:os.system {}", "x.yaml:1: a: tags (!) are not accepted"),
        ("a: ! 3", "x.yaml:1: a: tags (!) are not accepted"),
        ("a: &x 1", "x.yaml:1: a: anchors (&) are not accepted; write the value out"),
        ("b:\n- *x", "x.yaml:2: b[0]: aliases (*) are not accepted; write the value out"),
        ("a:\n  <<: {b: 1}", "x.yaml:2: a: merge keys (<<) are not accepted; write the keys out"),
        ("%YAML 1.1\n---\na: 1", "x.yaml:1: directives (%) are not accepted"),
        ("a: {1.5: x}", "x.yaml:1: a: the key '1.5' is not text; put it in quotes"),
        ("true: x", "x.yaml:1: the key 'true' is not text; put it in quotes"),
        ("? [a]\n: 1", "x.yaml:1: a mapping or list cannot be a key"),
        ("", "x.yaml: is empty"),
        ("# nothing\n", "x.yaml: is empty"),
        ("a: 1\nb: \x00", "x.yaml:2: holds the control character U+0000"),
        ("a: \x1b[31m", "x.yaml:1: holds the control character U+001B"),
        ("a: \u2028b", "x.yaml:1: holds the control character U+2028"),
    ],
)
def test_what_is_outside_the_subset_is_refused_with_its_place(text: str, message: str) -> None:
    assert refusal(text) == message


@pytest.mark.parametrize(
    ("text", "line"),
    [("a: b: c", 1), ("a: 1\n\tb: 2", 2), ("a: [1,\nb: 2", 2), ("a: 'x", 1), ("a: 1\n- b", 2)],
)
def test_a_syntax_error_is_one_line(text: str, line: int) -> None:
    message = refusal(text)
    assert message.startswith("x.yaml:")
    assert ": not valid YAML: " in message
    assert int(message.split(":")[1]) in (line, line + 1)
    assert "\n" not in message


def test_an_alias_bomb_costs_nothing() -> None:
    bomb = "a: &a [x, x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 9)}]\n" for i in range(9)
    )
    assert "anchors (&) are not accepted" in refusal(bomb)


@pytest.mark.parametrize("text", ["- " * 33 + "a", "[" * 33 + "]" * 33, "[" * 1_000_000])
def test_deep_nesting_is_refused(text: str) -> None:
    assert refusal(text).endswith("more than 32 levels")


def test_32_levels_are_read() -> None:
    value = loads("[" * 32 + "1" + "]" * 32, "x.yaml")[0]
    for _ in range(32):
        (value,) = value
    assert value == 1


def test_too_many_values_are_refused() -> None:
    assert refusal("- 1\n" * 200_000).endswith("more than 200,000 values")


def test_integer_keys_stay_integers() -> None:
    data, lines = loads("slow_ranks:\n  3: 1.5\n", "x.yaml")
    assert data == {"slow_ranks": {3: 1.5}}
    assert lines["slow_ranks", 3] == 2


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30) + 1, 10**30 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
    ),
    max_leaves=20,
)


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same types all the way down (1, 1.0 and True differ)."""
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


@settings(deadline=None)
@given(data=JSON)
def test_what_is_dumped_reads_back_the_same(data: Any) -> None:
    assert same(loads(dump_yaml(data), "x.yaml")[0], data)


@settings(deadline=None)
@given(
    text=st.sampled_from(["no", "yes", "on", "1:30", "0400", "1e9", ".5", ".nan", "~", "null"])
    | st.sampled_from(["<<", "#", "x:y", "-", "[a", "*a", "&a", "!a", "|", "...", "---"])
    | st.sampled_from(["", " ", "a: b", "- a", "a #b", "\x85", "\u2028", "\x1b", "a\nb", "\ufeff"])
    | st.from_regex(r"[-+.0-9eE_:x]{1,8}", fullmatch=True)
)
def test_text_that_looks_like_something_else_reads_back_as_text(text: str) -> None:
    assert loads(dump_yaml({text: [text]}), "x.yaml")[0] == {text: [text]}


def test_dump_is_block_style_in_its_own_order() -> None:
    data = {"model": "resnet50", "cluster": {"nodes": 2}, "sweep": {"cluster.nodes": (1, 2)}}
    assert dump_yaml(data) == (
        "model: resnet50\ncluster:\n  nodes: 2\nsweep:\n  cluster.nodes:\n  - 1\n  - 2\n"
    )


@pytest.mark.parametrize("data", [float("nan"), float("inf"), 10**30, {3: 1, "3": 2}])
def test_values_the_subset_cannot_say_are_not_dumped(data: Any) -> None:
    with pytest.raises(ValueError, match=r"finite|digits|same text"):
        dump_yaml(data)


@pytest.mark.parametrize("data", [object(), {1.5: 1}, {True: 1}, {1, 2}, b"x"])
def test_only_plain_data_is_dumped(data: Any) -> None:
    with pytest.raises(TypeError):
        dump_yaml(data)


@settings(deadline=None)
@given(data=JSON, indent=st.sampled_from([None, 2, "\t"]))
def test_json_is_accepted(data: Any, indent: int | str | None) -> None:
    text = json.dumps(data, indent=indent, ensure_ascii=False)
    try:
        found = loads(text, "x.json")[0]
    except FileRefused as error:
        assert "control character" in error.message  # JSON allows U+007F … U+009F and U+2028 raw
        assert not text.isprintable()
    else:
        assert same(found, data)


@settings(deadline=None)
@given(text=st.text(alphabet="ab01:-[]{}&*!<>|'\"%@ ,#?\n\t.~eE\\", max_size=60))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    try:
        data, lines = loads(text, "x.yaml")
    except FileRefused as error:
        assert str(error).startswith("x.yaml:")
        assert str(error).isprintable()
    else:
        assert () in lines
        assert same(loads(dump_yaml(data), "x.yaml")[0], data)


def test_load_reads_a_file_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: \xc2\xb5\r\n")
    assert load(path) == ({"a": 1, "b": "µ"}, {(): 1, ("a",): 1, ("b",): 2})


def test_load_shows_the_name_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: 1\na: 2\n")
    with pytest.raises(FileRefused, match=r"^scenarios/x\.yaml:2: a: is given twice"):
        load(path, "scenarios/x.yaml")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: 1\nb: \xff", "x.yaml:2: is not UTF-8 text"),
        ("a: 1".encode("utf-16"), "x.yaml:1: is not UTF-8 text"),
        (b" " * 10_000_001, "x.yaml: is larger than 10 MB"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    with pytest.raises(FileRefused) as caught:
        load(path, "x.yaml")
    assert str(caught.value) == message


def test_10_megabytes_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: 1\n#" + "x" * (10_000_000 - 6))
    assert load(path)[0] == {"a": 1}


def test_a_sparse_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    with path.open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(FileRefused, match="is larger than 10 MB"):
        load(path)


def test_only_files_and_pipes_are_read(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path, message in [
        (tmp_path, "is a folder; a file is needed"),
        (tmp_path / "none", "there is no such file"),
        (tmp_path / "none" / "x", "there is no such file"),
        (fifo, "is a pipe that holds nothing"),
        (Path("/dev/zero"), "is a device or socket; a file or a pipe is needed"),
        (tmp_path / ("x" * 5000), "cannot be read: file name too long"),
        (tmp_path / "a\0b", "is not a path"),
    ]:
        with pytest.raises(FileRefused) as caught:
            load(path, "x.yaml")
        assert str(caught.value) == f"x.yaml: {message}"


def test_located_points_at_the_longest_known_part_of_the_path() -> None:
    lines = {(): 1, ("cluster",): 5, ("cluster", "nodes"): 7}
    wrong = Refused("0 is not in 1 … 1,048,576", ("cluster", "nodes"))
    assert str(located(wrong, "scenarios/x.yaml", lines)) == (
        "scenarios/x.yaml:7: cluster.nodes: 0 is not in 1 … 1,048,576"
    )
    missing = Refused("is missing", ("cluster", "machine"))
    assert str(located(missing, "x.yaml", lines)) == "x.yaml:5: cluster.machine: is missing"
    assert str(located(Refused("is missing", ("model",)), "x.yaml", lines)) == (
        "x.yaml:1: model: is missing"
    )
    assert str(located(Refused("no"), "x.yaml", {})) == "x.yaml: no"


def test_located_keeps_the_place_of_an_included_file() -> None:
    inner = FileRefused("is empty", shown="inner.yaml")
    assert located(inner, "outer.yaml", {(): 1}) is inner


def test_a_refusal_is_one_printable_line_and_can_be_pickled() -> None:
    error = FileRefused("bad\nvalue", ("a\x1b[31m",), shown="x.yaml", line=3)
    assert str(error) == r"x.yaml:3: a\x1b[31m: bad\nvalue"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert isinstance(error, Refused)
