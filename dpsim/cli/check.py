"""`dpsim check`: is a measured step normal, and if not, what may be wrong?"""

from __future__ import annotations

from typing import Annotated

from dpsim.cli.answers import answer, written
from dpsim.cli.options import Json, Sets, Source, Texts, Where, option, out_option

PLACE = 65
StepTimes = Annotated[
    Texts,
    option(
        "A measured step, e.g. 8=0.41s, or 8,accumulation=4=1.2s. Repeatable.",
        "RANKS=TIME",
        name="--step-time",
    ),
]
Throughputs = Annotated[
    Texts,
    option(
        "A measured throughput, e.g. '8=6154 images/s'. Repeatable.",
        "RANKS=RATE",
        name="--throughput",
    ),
]
Out = Annotated[Where, out_option("Write JSON and page there.")]


def check(
    scenario: Source,
    step_time: StepTimes = None,
    throughput: Throughputs = None,
    sets: Sets = None,
    json: Json = False,
    out: Out = None,
) -> int:
    """Say whether measured steps of SCENARIO are normal.

    Exit code 1: they are slow.
    """
    from dpsim.checks.next_commands import AskedCheck, next_commands
    from dpsim.checks.steps import check_steps
    from dpsim.describe.scenario import read
    from dpsim.predict.timed import timed
    from dpsim.report.progress import progress
    from dpsim.report.step_check import FILES, print_step_check, write_check

    loaded = read(scenario, sets or ())
    with progress("faults", left=True) as bar:
        found = check_steps(timed(loaded, step_time or (), throughput or ()), bar.of)
    asked = AskedCheck(scenario, step_time or (), throughput or (), sets or ())
    commands = next_commands(found, asked)
    if out is not None:
        from dpsim.report.pages.checked import steps_page

        write_check(found.document(commands), steps_page(loaded.called, found, commands), out)
    answer(
        json,
        lambda: found.document(commands),
        lambda console: print_step_check(found, commands, console, written(out, FILES)),
    )
    return int(found.verdict == "slow")
