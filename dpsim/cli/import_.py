"""`dpsim import`: files that people have in, a machine or a scenario out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from dpsim.cli.answers import answer
from dpsim.cli.options import Json, Text, Where, argument, option, out_option

PLACE = 90
Files = Annotated[
    list[Path], argument("A topology, a training configuration, a launch script, a log, …", "FILES")
]
Device = Annotated[Text, option("Which GPU it is: h100-sxm, a100-sxm-80gb, …", "NAME")]
Like = Annotated[Text, option("Take from there what the files don't say.", "MACHINE")]
Machine = Annotated[Text, option("The machine of a scenario, or of a cluster's nodes.", "MACHINE")]
Model = Annotated[Text, option("The model of a scenario: llama-3-8b, resnet50, …", "MODEL")]
Part = Annotated[Text, option("Of a file that describes several: this one.", "NAME")]
Out = Annotated[Where, out_option("Write the machine or scenario there.", "FILE")]


def import_(
    files: Files,
    device: Device = None,
    like: Like = None,
    machine: Machine = None,
    model: Model = None,
    part: Part = None,
    out: Out = None,
    json: Json = False,
) -> int:
    """Find out what FILES are, and make a scenario or machine."""
    from dpsim.measurements import importing
    from dpsim.measurements.kinds import Wishes
    from dpsim.report import importing as report

    name = importing.name_for(out)
    asked = device or like or machine or out or len(files) > 1
    if asked and importing.of_a_node(files):
        found = importing.import_machine(files, device=device, like=like or machine, name=name)
        if out is not None:
            importing.save(found, out)
        document = importing.document
        answer(json, lambda: document(found), lambda to: report.print_import(found, to, out))
        return int(bool(found.findings))
    from dpsim.describe.scenario import load
    from dpsim.measurements import brought

    beside = Path() if out is None else out.parent
    wanted = Wishes(model or "", machine or like or "", device or "", part or "", name, beside)
    account = brought.bring(files, wanted, load)
    if out is not None:
        brought.save(account, out)
    show = report.print_account
    answer(json, lambda: brought.document(account), lambda to: show(account, to, out))
    return int(bool(account.findings))
