"""`dpsim measure`: record a training script on one device as rank 0 of any world size."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpsim.cli.options import Text, Where, argument, option, out_option

PLACE = 100
Command = Annotated[
    list[str],
    argument("python train.py …, python -m package.train …, or module:function.", "-- COMMAND"),
]
World = Annotated[int, option("Ranks that the script sees.", min=1, max=1_048_576)]
Out = Annotated[Where, out_option("Where to; FILE.yaml plays it.", "FILE.json")]
Steps = Annotated[int, option("Steps timed with hooks on layers.", min=1, max=1000)]
Warmup = Annotated[int, option("Iterations before them.", min=3, max=100_000)]
Machine = Annotated[Text, option("Machine that the scenario names.")]
Flops = Annotated[bool, option("Count work in one more step.", name="--flops/--no-flops")]


def measure(
    command: Command,
    world_size: World,
    out: Out = None,
    steps: Steps = 10,
    warmup: Warmup = 5,
    machine: Machine = None,
    flops: Flops = True,
) -> int:
    """Run a DDP training script, unchanged, as rank 0 of WORLD_SIZE ranks, and record its steps."""
    from dpsim.measurements.recorder import files, runner

    what = runner.target(command)
    place = out or Path(f"{what.title}.json")
    files.check(place, machine)
    document = runner.run(what, world_size=world_size, steps=steps, warmup=warmup, flops=flops)
    for line in files.said(files.write(document, place, machine), place, machine):
        typer.echo(line)
    return 0
