"""`dpsim measure`: record a training script on one device as rank 0 of any world size."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from dpsim.cli.answers import answer
from dpsim.cli.options import Json, Text, Where, argument, option, out_option

PLACE = 100
Command = Annotated[
    list[str],
    argument("python train.py …, python -m package.train …, or module:function.", "-- COMMAND"),
]
World = Annotated[int | None, option("Ranks that the script sees.", min=1, max=1_048_576)]
Out = Annotated[Where, out_option("Where to; FILE.yaml plays it.", "FILE.json")]
Steps = Annotated[int, option("Steps timed with hooks on layers.", min=1, max=1000)]
Warmup = Annotated[int, option("Iterations before them.", min=3, max=100_000)]
Machine = Annotated[Text, option("Machine that the scenario names.")]
Loading = Annotated[
    bool, option("Time what module:function returns, which yields batches.", name="--input")
]
Flops = Annotated[bool, option("Count work in one more step.", name="--flops/--no-flops")]


def measure(
    command: Command,
    world_size: World = None,
    out: Out = None,
    steps: Steps = 10,
    warmup: Warmup = 5,
    machine: Machine = None,
    flops: Flops = True,
    input_: Loading = False,
    json: Json = False,
) -> int:
    """Record the steps of a DDP training script, as one rank.

    It runs unchanged, as rank 0 of WORLD_SIZE ranks; --input times a loader alone.
    """
    from dpsim.core.record import Refused
    from dpsim.measurements.recorder import files, runner

    if input_:
        return _loading(command, out, steps, json)
    if world_size is None:
        raise Refused("--world-size is missing: the ranks that the script is to see")
    what = runner.target(command)
    place = out or Path(f"{what.title}.json")
    files.check(place, machine)
    document = runner.run(what, world_size=world_size, steps=steps, warmup=warmup, flops=flops)
    said = files.said(files.write(document, place, machine), place, machine)
    answer(json, lambda: loaded(place), lambda console: _print(said))
    return 0


def _loading(command: list[str], out: Path | None, batches: int, json: bool) -> int:
    """Time a loader of `command`, and write its record."""
    from dpsim.core.record import Refused
    from dpsim.measurements.recorder import loaders

    place = out or Path("loader.json")
    if place.suffix != ".json":
        raise Refused(f"-o {place}: a record's name ends in .json")
    said = list(loaders.measure(command, place, max(batches, 32)))
    answer(json, lambda: loaded(place), lambda console: _print(said))
    return 0


def loaded(place: Path) -> Any:
    """The record that was written."""
    from dpsim.core import jsonfile
    from dpsim.core.files import read_text

    return jsonfile.loads(read_text(place, 2**30))


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(line)
