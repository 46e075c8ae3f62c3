"""`dpsim measure`: record a training script on one device as rank 0 of any world size."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpsim.cli.options import out_option

PLACE = 100
Command = Annotated[
    list[str],
    typer.Argument(
        metavar="-- COMMAND",
        help="python train.py …, python -m package.train …, or module:function.",
    ),
]
World = Annotated[int, typer.Option(min=1, max=1_048_576, help="Ranks that the script sees.")]
Out = Annotated[Path | None, out_option("Where to; FILE.yaml plays it.", "FILE.json")]
Steps = Annotated[int, typer.Option(min=1, max=1000, help="Steps timed with hooks on layers.")]
Warmup = Annotated[int, typer.Option(min=3, max=100_000, help="Iterations before them.")]
Machine = Annotated[str | None, typer.Option(help="Machine that the scenario names.")]
Flops = Annotated[bool, typer.Option("--flops/--no-flops", help="Count work in one more step.")]


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
    from dpsim.report.recorded import recorded

    what = runner.target(command)
    place = out or Path(f"{what.title}.json")
    files.check(place)
    if machine is not None:
        from dpsim.machines.machine import load_machine

        load_machine(machine, place.parent)
    document = runner.run(what, world_size=world_size, steps=steps, warmup=warmup, flops=flops)
    found = files.write(document, place, machine)
    typer.echo(recorded(found))
    name = "" if machine else " --set cluster.machine=NAME"
    typer.echo(f"{place} written; next: dpsim run {files.scenario_file(place)}{name}")
    return 0
