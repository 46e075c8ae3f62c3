"""From a row of a table of training runs to the `host:` section of a scenario."""

from __future__ import annotations

from typing import Any

from dpsim.accuracy.training.mesh import RowMesh
from dpsim.accuracy.training.models import ModelChoice, blocks_of
from dpsim.accuracy.training.strategies import of_system
from dpsim.accuracy.training.table import TrainingRow
from dpsim.accuracy.words import vocabulary

#: time to take a slice of a tensor and to copy it, of each rank and tensor [s]: what brings half of
#: 391 runs of its playbook with ZeRO-1 nearest in the median, in steps of 0.5 us (the other half:
#: 8.0).  9 was derived before: 5.8 us on a CPU with torch 2.13, slices of eight elements, 256 ranks
#: and 99 tensors, and 3.0 to 3.3 us that a launch on a GPU takes the driver on top (GB200:
#: meta-pytorch/tritonbench pull request 1017)
COPY = 7.5e-6
#: tensors of a block (query, key and value; output; gate and up; down; two norms) and beside them
#: (embedding, norm, head): huggingface/nanotron at 0e0a27ea, src/nanotron/models/llama.py
OF_BLOCK, BESIDE = 6, 3
#: time to issue one of a block's kernels, as a hand-tuned library has them, where its linear layers
#: are split [s]: 3.4 ms a block and micro-batch, of 45 kernels.  What huggingface/nanotron ran with
#: one to two sequences on 2 to 8 H100 took 4.5 ms, whatever the micro-batch, of which about 1 ms
#: are exchanges (its playbook's benchmarks_interactive.html; docs/assumptions.md, A92).  A split
#: layer is a Python function either way, of an exchange, up to three products and their views, with
#: hooks that add each gradient in fp32 (src/nanotron/parallel/tensor_parallel/functional.py,
#: optim/gradient_accumulator.py)
ISSUE = 75e-6
#: what each of a layer's kernels takes longer for every rank that shares the layer, where a
#: pipeline leaves the node [s]: the median of 122 runs of the same playbook's model of 1 B on 16 to
#: 256 H100 (51 us, as dpsim plays them; 117 of its model of 3 B: 45 us).  Whatever the micro-batch,
#: the stages and the replicas, blocks took 12, 16, 27 and 60 ms with 2, 4, 8 and 16 tensor ranks,
#: 3 B's, half again as wide, 10, 15, 24 and 53 (medians), and 4.5 to 8 ms on one node or without
#: either of the two.  Nobody has said what waits there (docs/assumptions.md, A92)
AWAY = 50e-6
#: GPUs of a node where no column says it: those of its H100
NODE = 8


def host_of(
    row: TrainingRow, strategy: dict[str, Any], model: ModelChoice, mesh: RowMesh, notes: list[str]
) -> dict[str, Any]:
    """The `host:` section of `row`, empty where nothing is known; appends to `notes` what is told.

    After its update nanotron's ZeRO-1 gathers all parameters in one buffer and takes them out of it
    one by one, for every replica, in Python (same repository, src/nanotron/distributed.py,
    all_gather_coalesced): replicas x tensors of the stage x `COPY` seconds.
    """
    text = row.text("framework").lower()
    found: dict[str, Any] = _issuing(row, model, mesh, notes)
    if model.language and not mesh.label:
        found |= of_system(vocabulary().host, row, notes)
    sharded = strategy["kind"] == "zero" and vocabulary().strategies.copies_out.search(text)
    if not sharded or not model.language or mesh.replicas == 1:
        return found
    tensors = OF_BLOCK * blocks_of(model) / mesh.pipeline + BESIDE
    seconds = mesh.replicas * tensors * COPY
    notes.append(f"the host copies gathered parameters out in {seconds:.2g} s")
    return {**found, "serial": f"{seconds!r} s"}


def _issuing(
    row: TrainingRow, model: ModelChoice, mesh: RowMesh, notes: list[str]
) -> dict[str, str]:
    """What issuing a kernel takes the host where ranks share a model, known of nanotron."""
    words = vocabulary().strategies.copies_out
    if not model.language or not mesh.label or not words.search(row.text("framework").lower()):
        return {}
    leaves = mesh.pipeline > 1 and row.gpus > (row.get("gpus_per_node") or NODE)
    seconds = ISSUE + AWAY * mesh.tensor * (leaves and mesh.tensor > 1)
    notes.append(f"the host takes {1e6 * seconds:.0f} us for each kernel of a layer")
    return {"launch": f"{seconds!r} s"}
