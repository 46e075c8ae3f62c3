"""`dpsim explain`: where the step goes, what limits it, and what would help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from dpsim.cli.answers import answer, unfit
from dpsim.cli.options import Json, Sets, Source, Where, option, out_option

if TYPE_CHECKING:
    from rich.console import Console

PLACE = 40
Trace = Annotated[
    Where,
    option(
        "Write the last point's timeline as a trace for Perfetto: one .json or .json.gz; a folder "
        "gets one Kineto trace per rank, a name in .et one Chakra trace per rank.",
        "FILE",
    ),
]
Operations = Annotated[
    bool, option("Every operation of the ranks in --json: most of it.", name="--operations")
]
Out = Annotated[Where, out_option("Write JSON, trace, pictures and page there.")]


def explain(
    scenario: Source,
    sets: Sets = None,
    json: Json = False,
    operations: Operations = False,
    out: Out = None,
    trace: Trace = None,
) -> int:
    """Say where the step of SCENARIO goes, and what would help."""
    from dpsim.core.files import note_reads
    from dpsim.describe.scenario import read
    from dpsim.predict.prediction import predict
    from dpsim.report import explained as report
    from dpsim.report import trace as traces
    from dpsim.report.progress import progress

    if trace is not None:
        note_reads()
        traces.check_place(trace)
    loaded = read(scenario, sets or ())
    with progress(left=True) as bar:
        prediction = predict(loaded, tell=bar.of)
    with progress("explained", left=True) as bar:
        found = prediction.explain(bar.of)
    said = []
    if out is not None or trace is not None:
        shown = report.last_step(prediction)
        if out is not None:
            report.write_explanation(found, shown, out, report.layers_of(prediction))
            said.append(report.written(shown, [out]))
        if trace is not None:
            said.append(report.written(shown, traces.write_trace(shown, trace)))

    def show(console: Console) -> None:
        report.print_explanation(found, console)
        for line in said:
            console.print(line, markup=False, highlight=False)

    answer(json, lambda: found.document if operations else found.brief(), show)
    return unfit(prediction.points)
