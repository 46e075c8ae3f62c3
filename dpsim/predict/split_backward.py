"""What to know about a backward that is split in two where much is computed again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dpsim.cases.case import Case
from dpsim.cases.variant import Variant
from dpsim.compile.schedules.one_f_one_b import OneFOneB
from dpsim.core.plugins import name_of
from dpsim.core.record import Refused
from dpsim.models.recomputing import WHOLE_BLOCKS
from dpsim.predict.memory import memory_of, splits_graph


def warnings(good: Sequence[Case]) -> Iterator[str]:
    """That torch's pipelining computes blocks again for every weight, which nothing counts, and
    that it has no such schedule."""
    for case in good:
        if not _splits(case):
            continue
        schedule = name_of(case.programs.layout.schedule)
        if case.scenario.strategy.torch_stages and not splits_graph(case):
            yield (
                f"{schedule} is none of torch's schedules: memory is that of code that puts "
                "products with weights off, which keeps less than torch's pipelining does"
            )
            return
        if not splits_graph(case) or not _again(case):
            continue
        yield (
            f"{schedule} with recompute {case.scenario.recompute}: "
            "torch's pipelining computes a block again for every weight in it, which memory has "
            "and step time has not; without torch.compile it ran at a tenth of interleaved_1f1b's "
            "tokens a second (pytorch/torchtitan#773)"
        )
        return


def beside_one_f_one_b(case: Case) -> Iterator[str]:
    """What a case that does not fit would need where nothing waits for a second half."""
    if not _splits(case) or not _again(case):
        return
    try:
        used = memory_of(Variant("one_f_one_b", {"schedule": OneFOneB()}).of(case))
    except Refused:
        return
    yield (
        f"recompute {case.scenario.recompute} saves nothing of what waits for the weights' half "
        "of backward (inputs of products, gradients of what they put out); one_f_one_b takes "
        f"{used.total / 1e9:.1f} GB"
    )


def _splits(case: Case) -> bool:
    """Whether backward is split."""
    return not case.mesh.plain and any(act.kind == "I" for acts in case.acts for act in acts)


def _again(case: Case) -> bool:
    """Whether something is computed again that waits all the same: blocks, and with torch's
    pipelining parts of them."""
    recompute = case.scenario.recompute
    return recompute in WHOLE_BLOCKS or (splits_graph(case) and recompute == "selective_op")
