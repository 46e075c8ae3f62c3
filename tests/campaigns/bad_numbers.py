"""A campaign of bad numbers: every numeric key of every kind of file and every option.

    python [-O] tests/campaigns/bad_numbers.py [--seed 1] [--limit 100000] [--only scenario]

Puts each of some 20 bad values where a number belongs, as the records' own types say where that is,
and calls what reads it.  Whatever is not refused, with one sentence and exit code 2, is a finding:
an internal error, text of a library, or an answer.  Prints counts and findings; exits with 1 where
there is one.  It takes minutes, so it is no part of the tests.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import inspect
import json
import os
import random
import re
import signal
import sys
import tempfile
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import typer

from dpsim.backends.curves import file as calibration
from dpsim.cli import _kind, _plain
from dpsim.cli.app import app
from dpsim.core import plugins, yamlfile
from dpsim.core.places import data_folder
from dpsim.core.record import Check
from dpsim.core.units import Unit
from dpsim.describe.scenario import Scenario, load
from dpsim.machines.devices import Device
from dpsim.machines.machine import Machine, load_device, load_machine
from dpsim.models.section import Explicit, FromRecord, HuggingFace
from dpsim.money.currency import Priced
from dpsim.predict.document import to_json
from dpsim.predict.prediction import predict

JARGON = (
    "pydantic", "Traceback", "Input should be", "validation error", "type=", "Errno", "numpy",
    "overflow", "OverflowError", "Decimal", "NoneType", "<class", "internal error",
)  # fmt: skip
#: what is no number wherever one belongs, as YAML
NEVER = (
    ".nan", ".inf", "-.inf", "1e400", "true", "[]", "{}", '"nan"', '"1_0"', '"\uff11"', '"0x10"',
    '"0,5"', '"1 2"', '"--1"', '"ten"',
)  # fmt: skip
UNITS = {
    "s": "s",
    "B": "B",
    "B/s": "B/s",
    "FLOP": "FLOP",
    "FLOP/s": "FLOP/s",
    "W": "W",
    "usd/h": "usd/h",
}
#: what is no number and right all the same
OTHERWISE = (("reshard_after_forward", "true"), ("parameters", "[]"))
#: seconds after which a prediction from a bad number is given up, and counts as a finding
PATIENCE = 20


class Key(NamedTuple):
    """A place for a number: its path, its mark, and what must stand around it."""

    path: tuple[str | int, ...]
    mark: Unit | Check | Priced
    around: tuple[tuple[tuple[str | int, ...], Any], ...] = ()


def bad_values(mark: Unit | Check | Priced) -> Iterator[str]:
    """What is no number of this mark, as YAML."""
    yield from NEVER
    if isinstance(mark, Check):
        yield from ("1.5", '"2"', "1e308", "1e-320", str(mark.high + 1), f"{mark.low - 1}")
        yield from ("9" * 40,) if mark.high < 10**40 else ()
    elif isinstance(mark, Priced):
        per = f"/{mark.per}" if mark.per else ""
        yield from (
            f'"{n} usd{per}"' for n in ("-1", "1e308", "nan", "1_0", "\uff11", "0,5", "inf")
        )
        yield from ("25", '"25 usd/parsec"')
    else:
        unit = UNITS.get(mark.dimension, "")
        texts = ["1e400", "1e-320", "1e-30", "inf", "1_0", "\uff11", "0,5"]
        texts += ["1e308"] if mark.high < 1e308 else []
        texts += ["-1"] if mark.low >= 0 else []
        texts += ["0"] if mark.above and mark.low == 0 else []
        yield from (f'"{text} {unit}"' if unit else text for text in texts)
        yield from ("25",) if unit else ()
        yield '"25 parsec"'


# -- where numbers belong -------------------------------------------------------------------------


def keys(hint: Any, path: tuple[str | int, ...] = (), around: Any = ()) -> Iterator[Key]:
    """Every place for a number below a type."""
    arguments = get_args(hint)
    if get_origin(hint) is Annotated:
        yield from _marked(arguments, path, around)
    elif dataclasses.is_dataclass(hint):
        yield from _fields(hint, path, around)
    elif get_origin(hint) in (typing.Union, types.UnionType):
        for each in arguments:
            yield from keys(each, path, around)
    elif get_origin(hint) in (tuple, list):
        yield from keys(arguments[0], (*path, 0), around)
    elif get_origin(hint) in (dict, collections.abc.Mapping):
        key = 0 if "int" in str(arguments[0]) else "a"
        yield from keys(arguments[1], (*path, key), around)


def _marked(arguments: Any, path: tuple[str | int, ...], around: Any) -> Iterator[Key]:
    """Those of a type with marks: a number, a plug-in of each name, a model of each kind."""
    plugged = [mark for mark in arguments[1:] if isinstance(mark, plugins.Plugin)]
    number = [mark for mark in arguments[1:] if isinstance(mark, (Unit, Check, Priced))]
    if number:
        yield Key(path, number[0], around)
        return
    if path == ("model",):
        plugged.append(plugins.Plugin("models", "name"))
        for kind in (Explicit, HuggingFace, FromRecord):
            yield from keys(kind, path, around)
    for mark in plugged:
        for name in plugins.names(mark.folder):
            named = (*around, ((*path, mark.tag), name))
            yield from keys(plugins.find(mark.folder, name), path, named)
    if not plugged:
        yield from keys(arguments[0], path, around)


def _fields(cls: Any, path: tuple[str | int, ...], around: Any) -> Iterator[Key]:
    hints = get_type_hints(cls, include_extras=True)
    known = getattr(cls, "__pydantic_fields__", {})
    names = {
        f.name: getattr(known.get(f.name), "alias", None) or f.name for f in dataclasses.fields(cls)
    }
    needed = tuple(
        ((*path, names[f.name]), example(hints[f.name]))
        for f in dataclasses.fields(cls)
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    )
    for field in dataclasses.fields(cls):
        yield from keys(hints[field.name], (*path, names[field.name]), (*around, *needed))


def example(hint: Any) -> Any:
    """Something that the type accepts, or nearly so."""
    origin, arguments = get_origin(hint), get_args(hint)
    found: Any = {"a": 1} if origin is dict else "a"
    if origin is Annotated:
        found = _marked_example(arguments)
    elif origin is typing.Literal:
        found = arguments[0]
    elif origin in (typing.Union, types.UnionType):
        found = example(arguments[0])
    elif origin in (tuple, list):
        found = [example(arguments[0])]
    return found


def _marked_example(arguments: Any) -> Any:
    found = None
    for mark in arguments[1:]:
        if isinstance(mark, Check):
            found = max(mark.low, 1)
        elif isinstance(mark, Unit):
            found = f"1 {UNITS[mark.dimension]}" if mark.dimension in UNITS else 1
        elif isinstance(mark, Priced):
            found = mark.example
        elif isinstance(mark, plugins.Plugin):
            found = {mark.tag: plugins.names(mark.folder)[0]}
    return example(arguments[0]) if found is None else found


def put(data: Any, path: tuple[str | int, ...], value: Any) -> None:
    """Set `value` at `path`, making mappings and lists on the way."""
    place, *rest = path
    if rest:
        kind = list if isinstance(rest[0], int) and place not in _BY_NUMBER else dict
        there = dict(enumerate(data)) if isinstance(data, list) else data
        inner = there.get(place)
        inner = inner if isinstance(inner, kind) else kind()
        put(inner, tuple(rest), value)
        value = inner
    if isinstance(data, list):
        data[int(place) :] = [value]
    else:
        data[place] = value


def there(data: Any, path: tuple[str | int, ...]) -> bool:
    for place in path:
        if isinstance(data, list):
            data = dict(enumerate(data))
        if not isinstance(data, dict) or place not in data:
            return False
        data = data[place]
    return True


#: keys that name a plug-in
_TAGS = ("kind", "family", "backend", "name")
#: mappings whose keys are numbers
_BY_NUMBER = ("slow_ranks", "slow_nodes", "per_rank", "devices", "nodes")
TOY = {
    "model": {"layers": [{"name": "a", "parameters": 1000, "forward": "1 ms", "backward": "2 ms"}]},
    "cluster": {"ranks": 2},
    "collective": {"backend": "ideal", "latency": "1 ms", "bandwidth": "10 MiB/ms"},
    "strategy": {"kind": "ddp"},
    "optimizer": {"kind": "none"},
}
BOX = {
    "model": {"name": "resnet50"},
    "cluster": {"machine": "dgx-a100", "nodes": 2},
    "strategy": {"kind": "ddp"},
    "optimizer": {"kind": "adam"},
    "batch": {"per_device": 32},
}


class Try(NamedTuple):
    """A bad value at a place: what it is called, and what reads it."""

    kind: str
    where: str
    value: str
    read: Callable[[], object]

    @property
    def key(self) -> str:
        """The name that a refusal of this number has in it."""
        words = re.findall(r"[a-z_]{2,}", self.where.partition(" (")[0])
        return str(words[-1]) if words else ""


def text_with(base: Any, key: Key, value: str) -> str:
    """`base` as YAML with `value` at `key`."""
    data = json.loads(json.dumps(base))
    for path, needed in key.around:
        if path[-1] in _TAGS or not there(data, path):
            put(data, path, json.loads(json.dumps(needed)))
    put(data, key.path, "@@")
    return yamlfile.dump_yaml(data).replace("'@@'", value).replace("@@", value)


def predicted(text: str, folder: Path) -> object:
    data, _ = yamlfile.loads(text, "x.yaml")
    answer = predict(load(data, folder, "x")).answer
    return json.dumps(to_json(answer), allow_nan=False)


def scenarios(folder: Path) -> Iterator[Try]:
    for key in dict.fromkeys(map(_hashable, keys(Scenario))):
        base = TOY if "layers" in key.path else BOX
        if key.path[0] == "model" and "layers" not in key.path:
            base = {**BOX, "model": {}}
        for value in bad_values(key.mark):
            if (key.path[-1], value) in OTHERWISE:
                continue
            yield Try("scenario", _shown(key), value, lambda b=base, k=key, v=value:
                      predicted(text_with(b, k, v), folder))  # fmt: skip


def _hashable(key: Key) -> Key:
    return Key(key.path, key.mark, _Around(key.around))


class _Around(tuple):
    def __hash__(self) -> int:
        return hash(repr(self))


def _shown(key: Key) -> str:
    tags = [str(value) for path, value in key.around if path[-1] in ("kind", "family", "backend")]
    return ".".join(map(str, key.path)) + (f" ({', '.join(tags)})" if tags else "")


def machines(folder: Path) -> Iterator[Try]:
    topologies = data_folder("topologies")
    for kind, cls, base, read in (
        ("machine", Machine, topologies / "dgx-a100.yaml", load_machine),
        ("device", Device, topologies / "devices" / "a100-sxm-80gb.yaml", load_device),
    ):
        data = {k: v for k, v in yamlfile.load(base)[0].items() if k != "sources"}
        for key in dict.fromkeys(map(_hashable, keys(cls))):
            for value in bad_values(key.mark):
                yield Try(kind, _shown(key), value, lambda d=data, k=key, v=value, r=read:
                          _from_file(text_with(d, k, v), folder, r))  # fmt: skip


def calibrations(folder: Path) -> Iterator[Try]:
    data = yamlfile.load(calibration.folder() / "h100-8gpu.yaml")[0]
    data = {k: v for k, v in data.items() if k != "digest"} | {"made_from": []}
    for key in dict.fromkeys(map(_hashable, keys(calibration.Calibration))):
        for value in bad_values(key.mark):
            yield Try("calibration", _shown(key), value, lambda k=key, v=value: _from_file(
                text_with(data, k, v), folder, lambda name, base: calibration.load(base / name)
            ))  # fmt: skip


def _from_file(text: str, folder: Path, read: Callable[[str, Path], object]) -> object:
    (folder / "x.yaml").write_text(text, encoding="utf-8")
    os.utime(folder / "x.yaml", ns=(random.getrandbits(60), random.getrandbits(60)))
    return read("x.yaml", folder)


def configs(folder: Path) -> Iterator[Try]:
    """The numbers of Hugging Face configurations that the model depends on."""
    for file in sorted((data_folder("scenarios").parent / "dpsim/models/configs").glob("*.json")):
        data = json.loads(file.read_text(encoding="utf-8"))
        for name, number in data.items():
            if isinstance(number, bool) or not isinstance(number, (int, float)):
                continue
            for value in (
                "NaN",
                "Infinity",
                "1e400",
                "true",
                "[]",
                '"2"',
                "-1",
                "1.5",
                "1e308",
                "9" * 40,
            ):
                yield Try("config", f"{file.stem}: {name}", value,
                          lambda d=data, n=name, v=value: _of_config(d, n, v, folder))  # fmt: skip


def _of_config(data: dict[str, Any], name: str, value: str, folder: Path) -> object:
    """None where the number is not read at all."""
    text = json.dumps(data | {name: "@@"}).replace('"@@"', value)
    whole, found = (_model(text, folder) for text in (json.dumps(data), text))
    return None if found == whole else found


def _model(text: str, folder: Path) -> object:
    (folder / "c.json").write_text(text, encoding="utf-8")
    return HuggingFace(huggingface="c.json", sequence_length=128).model(folder)


def options(folder: Path) -> Iterator[Try]:
    """The numeric options of every command; what follows them does not matter."""
    program: Any = typer.main.get_command(app())
    for name, command in program.commands.items():
        hints = get_type_hints(inspect.unwrap(command.callback))
        for option in command.params:
            if int in (hints.get(option.name), *get_args(hints.get(option.name))):
                for value in (*NEVER, "-1", "1.5", "9" * 40, "1e308"):
                    plain = value.strip('"').lstrip(".")
                    yield Try("option", f"{name} {option.opts[-1]}", plain,
                              lambda c=command, o=option, v=plain: c.parse_args(
                                  c.context_class(c), [o.opts[-1], v]))  # fmt: skip


#: refusals of something else beside the number, which was not reached
MASKED: set[str] = set()
SOURCES = (scenarios, machines, calibrations, configs, options)


# -- judging --------------------------------------------------------------------------------------


class _TooLong(Exception):
    pass


def _late(*_: object) -> None:
    raise _TooLong


def judged(case: Try) -> str:
    """ "" where the value was refused as it should be; else what happened."""
    signal.signal(signal.SIGALRM, _late)
    signal.alarm(PATIENCE)
    try:
        if case.read() is None:
            return ""
    except _TooLong:
        return f"took more than {PATIENCE} s"
    except Exception as error:
        refused = hasattr(error, "format_message") or _kind(error)[0] == 2
        said = _plain(error.format_message()) if hasattr(error, "format_message") else str(error)
        word = next((word for word in JARGON if word in said), "")
        if not refused:
            return f"exit {_kind(error)[0]}: {type(error).__name__}: {said[:150]}"
        if (
            not word
            and case.kind != "option"
            and case.key not in said
            and "is not finite" not in said
        ):
            MASKED.add(f"{case.kind}: {case.where}: {said[:110]}")
        return f"says {word!r}: {said[:150]}" if word else ""
    finally:
        signal.alarm(0)
    return "accepted"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, default=10**9, help="tries at most, drawn by the seed")
    parser.add_argument("--only", default="", help="kinds of places, separated by commas")
    parser.add_argument("--masked", action="store_true", help="list numbers that were not reached")
    asked = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    findings: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tries = [case for source in SOURCES for case in source(folder)]
        tries = [case for case in tries if not asked.only or case.kind in asked.only.split(",")]
        dice = random.Random(asked.seed)
        chosen = dice.sample(tries, min(asked.limit, len(tries)))
        for case in chosen:
            counts[case.kind] += 1
            wrong = judged(case)
            if wrong:
                findings.append(f"{case.kind}: {case.where} = {case.value[:40]}: {wrong}")
                print(findings[-1], flush=True)
    places = len({(case.kind, case.where) for case in chosen})
    told = ", ".join(f"{kind} {count:,}" for kind, count in sorted(counts.items()))
    print(f"seed {asked.seed}: {len(chosen):,} bad numbers at {places:,} places ({told})")
    for line in sorted(MASKED) if asked.masked else ():
        print(f"not reached: {line}")
    print(f"{len(findings):,} findings; {len(MASKED):,} other refusals came first (--masked)")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
