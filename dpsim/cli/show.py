"""`dpsim show`: a machine, a model, or what is there to choose from."""

from __future__ import annotations

from typing import Annotated

from dpsim.cli.answers import answer
from dpsim.cli.completion import things
from dpsim.cli.manners import STANDARD
from dpsim.cli.options import Json, Where, argument, option, out_option
from dpsim.core.silence import no_answers

PLACE = 110
Thing = Annotated[
    str,
    argument(
        "A machine (dgx-h100), a device (h200), a model (llama-3-8b), a strategy (ddp), a backend, "
        "a pipeline schedule (zb1p), a scenario (quickstart), a model's config.json, the JSON of "
        "an answer; or machines, devices, models, strategies, backends, compression, schedules, "
        "scenarios, "
        "measuring-programs, doctor.",
        complete=things,
    ),
]
Nodes = Annotated[int, option("Nodes of the machine to draw.", min=1, max=64)]
Sequence = Annotated[
    int | None,
    option("Tokens per sequence of a model; default: 2048, or what it can.", min=1, max=10_000_000),
]
Out = Annotated[
    Where,
    out_option(
        "Draw a machine there (.png, .svg, .pdf), or write its graph (.graphml, .json).", "FILE"
    ),
]


def show(
    thing: Thing = "",
    nodes: Nodes = 2,
    sequence_length: Sequence = None,
    json: Json = False,
    out: Out = None,
) -> int:
    """Print machines, devices, models, scenarios and more.

    --out also draws a machine, or writes it as a graph.
    """
    from dpsim.report import console
    from dpsim.report.things import show_thing, write_machine
    from dpsim.report.things_document import document

    if out == STANDARD:
        json, out = True, None
    if not json and not no_answers():
        show_thing(thing, console(), nodes=nodes, sequence_length=sequence_length, out=out)
        return 0
    said = document(thing, sequence_length)
    if out is not None:
        write_machine(thing, nodes, out)
    answer(json, lambda: said, lambda _: None)
    return 0
