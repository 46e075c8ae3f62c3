"""Writes docs/scenario.md from the records of the scenario file.

    python docs/_generate.py          writes the file
    python docs/_generate.py --check  exits with 1 if the file is not what would be written

Keys, units, ranges, defaults and most meanings come from the code.  Where a record's docstring
does not describe a key, MEANING below does; a key without either is an error.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic_core import PydanticUndefined

from dpsim.compile.compression import Compression, Wanted
from dpsim.compile.context import Context
from dpsim.compile.copies import HostCopy
from dpsim.compile.loaders import Decode, DecodeTime, Loader, SampleKind
from dpsim.compile.routing import Moe
from dpsim.compile.strategies import TorchVersion
from dpsim.compile.strategies.ddp import Ddp
from dpsim.core import plugins
from dpsim.core.fields import field_infos
from dpsim.core.plugins import Plugin
from dpsim.core.record import Check
from dpsim.core.units import Unit, show
from dpsim.core.unknown import Absent, missing
from dpsim.describe import scenario, sections
from dpsim.describe.compute import Compute
from dpsim.describe.convergence import Training
from dpsim.describe.jobs import SECTIONS as SECTIONS_OF_A_JOB
from dpsim.describe.jobs import JobEntry
from dpsim.describe.parallel import Parallel
from dpsim.describe.rebalance import Rebalance
from dpsim.describe.sampler import Sampler
from dpsim.describe.sites import SiteEntry, SiteLink
from dpsim.life.failures import (
    BadNodes,
    Corruption,
    FailureCause,
    Failures,
    Interruptions,
    Maintenance,
    PerTime,
    Preemption,
    SharedCause,
    SlowNodes,
)
from dpsim.life.recoveries import Recovery, Repair, Spares
from dpsim.life.saving import Checkpoint, CheckpointLevel, Evaluation, Every, SavingPace
from dpsim.machines.cores import Cores
from dpsim.machines.storage import Storage
from dpsim.models.adapters import Adapters
from dpsim.models.configurations import bundled_models
from dpsim.models.execution import Execution
from dpsim.models.memory import MemorySection
from dpsim.models.precision import Optimizer, PrecisionSpec
from dpsim.models.section import Explicit, FromRecord, HuggingFace, LayerSpec, ModelSource
from dpsim.models.tuning import Tunable
from dpsim.models.zoo import zoo_names
from dpsim.money import price
from dpsim.money.currency import Priced
from dpsim.serving.described import Requests, ServedModel, Service, ServingCluster, ServingEngine
from dpsim.variability import (
    CoTenant,
    Delays,
    LinkEpisodes,
    Pauses,
    RandomSlow,
    SequenceLength,
    Shared,
    Variability,
)
from dpsim.variability.distributions import Drawn

TARGET = Path(__file__).with_name("scenario.md")

HEAD = """\
# The scenario file

This page is generated from the code by `docs/_generate.py`; don't edit it.

A scenario is one YAML (or JSON) document that determines a prediction completely.  Start from a
bundled one (`quickstart`, `amdahl`, `llama3-8b-h100`, `worked/ddp_steady`, …) or from the
[tutorial](tutorial.md).  The words used here are in the [glossary](glossary.md), what the model
takes for granted is in the [assumptions](assumptions.md).

Rules that hold for every key:

- A quantity with a dimension is text with its unit: `400 Gbit/s`, `5 us`, `10 MiB/ms`.  A bare
  number is refused.  `GB` is 1e9 bytes, `GiB` is 2^30 bytes, bits are written `bit`.
- A share is a number (`0.02`) or a percentage (`2 %`).
- A knob that carries a framework's own name takes that framework's bare number
  (`bucket_cap_mb: 25`).
- Unknown and repeated keys are refused, with the nearest known key named.  So are aliases, tags,
  merge keys and a second document.  A file has at most 10 MB and 32 levels.
- Files named in a scenario are looked up below the scenario's own folder and nowhere else.
- `--set a.b=value` on the command line overrides a key and is checked in the same way.  It holds
  in all points of a sweep: an axis over what it sets goes, and it is set inside the values of an
  axis over what it is in.  Where `sweep` is a list of points that set it, it is refused.
- No point of a sweep sets a key twice: axes that would overwrite each other are refused.
- `dpsim schema` prints the same as a JSON Schema, for editors; `dpsim schema answer` prints that of
  the answer, `dpsim run --json`.

In the tables, “required” in the column “default” means that the key has to be given; “–” means
that it may be left out.
"""

NOT_MODELLED = """\
What users ask for and dpsim does not have is refused by name, wherever a name or a key stands, with
the reason and what there is to do instead.  Combinations that are not modelled (such as parameter
servers with tensor parallelism) are refused where they meet.
"""

#: what the docstrings don't say, as "Record.key"
MEANING = {
    "Scenario.compression": "what gradients become before they travel: `fp16`, `{kind: powersgd, "
    "rank: 2}`",
    "Scenario.title": "name for people; the file's name if empty",
    "Scenario.model": "what is trained",
    "Scenario.cluster": "what it runs on; required, unless there are `sites`",
    "Scenario.sites": "clusters far apart, in place of `cluster`",
    "Scenario.links": "what joins the sites",
    "Scenario.strategy": "which data-parallel system, with its own knobs",
    "Scenario.collective": "who carries out collectives; with a machine `nccl` if left out",
    "Scenario.batch": "how many samples make a step",
    "Scenario.precision": "dtypes; if left out, everything in the model's own dtype",
    "Scenario.optimizer": "which optimizer updates the parameters",
    "Scenario.compute": "how fast the device computes, where nothing was measured",
    "Scenario.recompute": "activations computed again in backward to save memory",
    "Scenario.memory": "what is known of how memory is used ([memory](#memory))",
    "Scenario.parallel": "how ranks split layers, stages and samples between them",
    "Scenario.context": "how ranks that split sequences attend over all of them, where "
    "`parallel.context` makes them do so",
    "Scenario.moe": "how tokens are routed to experts, where `parallel.expert` shares them out",
    "Scenario.schedule": "in what order a pipeline works; left out: `one_f_one_b`",
    "Scenario.stages": (
        "the names of the layers of every stage; or `balanced`: the slowest stage is as fast as "
        "can be; left out: equal counts of blocks (or layers)"
    ),
    "Scenario.host": "work of the host",
    "Scenario.execution": "how kernels are made and issued: eagerly, compiled, in graphs",
    "Scenario.input": "what feeds the ranks; left out: images may lose to it (A26)",
    "Scenario.variability": "what makes ranks differ from one another",
    "Scenario.iteration": "which iteration is meant; `steady` is the settled sequence of steps",
    "Scenario.engine": "what plays the programs; `auto` is `event` while its estimated cost is low",
    "Scenario.detail": "a collective as one phase per stage, or every round of it",
    "Scenario.seed": "of all random draws",
    "Scenario.horizon": "how long workers with clocks of their own play; left out: until settled",
    "Scenario.sweep": (
        "the points: a mapping from key paths to lists is a grid, a list of mappings gives the "
        "points one by one"
    ),
    "Scenario.calibrate": "measured steps that set the level of compute; several fit more",
    "Scenario.calibration": (
        "a file of measured curves below the scenario's folder, or a bundled one; see "
        "[how to calibrate](howto/calibrate.md)"
    ),
    "Scenario.measured": (
        "CSV of measured points, shown and scored beside the predictions; columns `ranks` and "
        "`step_time_s`, or `ranks`, `throughput` and `unit`"
    ),
    "Scenario.price": "what the devices cost, and what comes beside them",
    "Scenario.energy": "electric power and its price",
    "Scenario.training": "how much training is needed; points then say how long it takes",
    "Scenario.failures": "what interrupts the run; needs `training` and `checkpoint`; points then "
    "have `goodput`, and `time_to_train_s` is a mean over drawn runs",
    "Scenario.checkpoint": "how the state of the job is saved",
    "Scenario.recovery": "what the job does when something broke; left out: `restart`",
    "Scenario.evaluation": "pauses in which the model is evaluated",
    "Scenario.startup": "what passes once, before the first step; points then have `startup_s`",
    "Cluster.machine": "a bundled machine, or a machine file below the scenario's folder",
    "Cluster.nodes": "number of nodes; this or `ranks`",
    "Cluster.ranks": "number of ranks; they fill the nodes in turn",
    "Cluster.gpus_per_node": "overrides the machine's; 1,024 at most, but for the chips of a slice",
    "Cluster.slice": (
        "lengths of the axes of a slice of TPUs, `[4, 64, 8]`, where it is not that of Google "
        "Cloud with as many chips; ranks count along the last one first"
    ),
    "Cluster.nics_per_node": "overrides the machine's",
    "Cluster.device": "a bundled device or a device file; overrides the machine's",
    "Cluster.inter_node_bandwidth": "of each NIC, one way; overrides the machine's",
    "Cluster.inter_node_latency": (
        "one way from a NIC to one of another node; overrides the machine's"
    ),
    "Cluster.inter_node_kind": "what joins the nodes (ethernet is TCP sockets, ipoib TCP over "
    "InfiniBand, slingshot_ip over Slingshot); overrides the machine's",
    "Cluster.oversubscription": "of the leaf switches; overrides the machine's",
    "Cluster.routing": "over the spine switches: `ecmp` hashes each flow to one of them, by "
    "`seed`, `balanced` spreads all evenly; left out: the machine's own",
    "Batch.per_device": "samples per rank (per replica, where ranks share a model) and "
    "micro-batch; alone: weak scaling; 1 if neither is given",
    "Batch.global": "samples per step over all ranks (strong scaling)",
    "Batch.accumulation": "micro-batches per step; follows from the two above where both are given",
    "Compute.efficiency": "share of the device's peak that large kernels reach",
    "Host.serial": "host time per step that no rank shares out",
    "Calibrate.step_time": "a measured step time",
    "Calibrate.throughput": "a measured throughput of all ranks together",
    "Calibrate.file": "a CSV as for `measured`; its rows are points, and `ranks` takes one count",
    "Calibrate.ranks": "the count at which it was measured; the first point if left out",
    "Calibrate.points": "several measured points, each with the keys below",
    "CalibrationPoint.step_time": "a measured step time",
    "CalibrationPoint.throughput": "a measured throughput of all ranks together",
    "CalibrationPoint.ranks": "the count at which it was measured; the first point if left out",
    "CalibrationPoint.per_device": "`batch.per_device` of that run, where it was another",
    "CalibrationPoint.global": "`batch.global` of that run, where it was another",
    "CalibrationPoint.accumulation": "`batch.accumulation` of that run, where it was another",
    "Optimizer.kind": "which optimizer",
    "Optimizer.fused": "how torch updates: `true`: one kernel for many tensors; `foreach`: one for "
    "every operation on many, torch's default on GPUs; `for_loop`: one for every operation on "
    "each; left out: bound by the bytes of a fused one",
    "Optimizer.extra_bytes": "read and written on the device for each parameter beside the update: "
    "casts of gradients, their norm, their scale (DeepSpeed's FP16_Optimizer without ZeRO: 32 B)",
    "Optimizer.master_weights": "an fp32 copy of parameters stored in 16 bit; left out: yes with "
    "`zero` and `megatron`, no with the others, whose optimizers update what is stored",
    "FromRecord.record": "a file of `dpsim measure` below the scenario's folder",
    "FromRecord.times": "left out: `recorded` on the recorded device, else `modelled`",
    "Explicit.layers": "the layers in registration order",
    "Explicit.dtype": "dtype of the parameters",
    "Explicit.forward_order": "layer names as forward visits them; registration order if left out",
    "Explicit.name": "name for people",
    "LayerSpec.name": "unique in the model",
    "LayerSpec.parameters": "their number, or a list of the tensors' numbers",
    "LayerSpec.forward": "duration per sample (required)",
    "LayerSpec.backward": "duration per sample; this or the next two",
    "LayerSpec.backward_input": "duration of the gradient of the input",
    "LayerSpec.backward_weight": "duration of the gradient of the weights",
    "LayerSpec.activation": "what its output sends",
    "LayerSpec.dtype": "overrides the model's",
    "Ddp.torch": "version whose behaviour is played",
    "Ddp.bucket_cap_mb": "bucket cap in MiB; left out: 1 for the first bucket, 25 for the others",
    "Ddp.find_unused_parameters": "as in torch",
    "Ddp.static_graph": "as in torch",
    "Ddp.gradient_as_bucket_view": "as in torch: no copies into and out of the buckets",
    "Ddp.broadcast_buffers": "as in torch: rank 0's buffers are broadcast before forward",
    "Ddp.no_sync": "with accumulation, reduce in the last micro-batch only",
    "Fsdp.torch": "version whose behaviour is played",
    "Fsdp.separate_reduce_scatter_group": "reduce-scatters have a communicator of their own",
    "Horovod.horovod": "version whose defaults are played",
    "Horovod.cycle_time": "in ms; left out: 1, before Horovod 0.21 it is 5",
    "Horovod.fusion_threshold": "in bytes, rounded up to 512 bytes a local rank; left out: "
    "128 MiB, before Horovod 0.21 it is 64 MiB",
    "Horovod.cache_capacity": "responses in the cache; 0: none, everything is negotiated",
    "Horovod.hierarchical_allreduce": "inside nodes on devices, between nodes through hosts; needs "
    "`local_size`",
    "Horovod.host_latency": "of one message between hosts in a negotiation",
    "Horovod.request_cost": "time of rank 0 for one tensor of one rank that is not cached",
    "Mirrored.num_packs": "ranges that the concatenated gradients are cut into; 0: nothing is "
    "packed",
    "MultiWorkerMirrored.bytes_per_pack": "a pack is closed when it holds more; 0: one pack",
    "MultiWorkerMirrored.implementation": "`ring` is refused",
    "Pmap.xla_gpu_all_reduce_combine_threshold_bytes": "most bytes of a combined all-reduce",
    "Pmap.xla_gpu_enable_latency_hiding_scheduler": "all-reduces start as gradients get ready",
    "Megatron.use_distributed_optimizer": "optimizer states are sharded; gradients are "
    "reduce-scattered and parameters gathered",
    "Megatron.overlap_grad_reduce": "buckets are reduced beside backward",
    "Megatron.overlap_param_gather": "buckets are gathered beside forward; needs the two above",
    "Megatron.bucket_size": "elements at which a bucket is closed; left out: 4e7, or 1e6 a rank",
    "Megatron.grad_reduce_in_fp32": "gradients are kept and reduced in fp32; left out: of bf16 "
    "parameters they are, as with `--bf16` (false: `--grad-reduce-in-bf16`), others in their dtype",
    "Megatron.num_distributed_optimizer_instances": "groups of consecutive ranks, each of which "
    "shares the states",
    "Megatron.gradient_accumulation_fusion": "products of gradients add to the buffer themselves; "
    "`false` (`--no-gradient-accumulation-fusion`, and Megatron-LM before February 2022): kernels "
    "of their own do, after every micro-batch",
    "Megatron.pad_buckets_for_high_nccl_busbw": "buckets end at multiples of 65,536 elements too",
    "Zero.offload_optimizer": "`cpu`: optimizer states and updates are on the host",
    "Zero.pcie_bandwidth": "between a device and its host, one way, pinned memory; left out: "
    "12 GB/s",
    "Zero.host_memory_bandwidth": "of a node, for the updates of all its ranks; left out: 100 GB/s",
    "Zero.zero_quantized_weights": "ZeRO++: parameters are gathered in int8",
    "Zero.zero_hpz_partition_size": "ZeRO++: backward gathers within groups of so many ranks",
    "Zero.zero_quantized_gradients": "ZeRO++: gradients of matrices are exchanged in int4",
    "Zero.local_world_size": "ranks of a node, for `zero_quantized_gradients`; left out: "
    "`zero_hpz_partition_size`",
    "Horovod.local_size": "ranks of a node, for `hierarchical_allreduce`; left out: the machine's",
    "Horovod.op": "`adasum` is refused",
    "Horovod.pcie_bandwidth": "between a device and its host, one way; left out: 12 GB/s; only for "
    "`hierarchical_allreduce`",
    "Zero.stage": "what is sharded: 1 optimizer states, 2 gradients too, 3 parameters too",
    "Zero.as_shipped": "false: as in the paper",
    "Zero.reduce_bucket_size": "elements of a bucket of gradients",
    "Zero.overlap_comm": "reduce beside compute; left out: true for stage 3 and on paper, else "
    "false",
    "Zero.partition_size": "stage 1: optimizer states are sharded over groups of so many "
    "consecutive ranks; left out: over all",
    "Zero.grad_accum_dtype": "stage 1: what gradients of micro-batches are added up in "
    "(`data_types.grad_accum_dtype`); left out: as the parameters",
    "Zero.contiguous_gradients": "gradients are copied into a buffer of the bucket's size",
    "Zero.use_multi_rank_bucket_allreduce": "true: one all-reduce per bucket; false: "
    "one reduce per rank that owns a part of it",
    "Zero.stage3_prefetch_bucket_size": "elements gathered ahead; left out: 5e7",
    "Zero.stage3_param_persistence_threshold": "parameters of at most so many elements are never "
    "given up; left out: 1e5",
    "Zero.stage3_max_live_parameters": "elements gathered at a time; left out: 1e9",
    "Zero.stage3_max_reuse_distance": "elements until its next use within which a parameter is "
    "kept; left out: 1e9",
    "Nccl.version": 'whose rules choose, in quotes: `"2.18"`; left out: the newest known',
    "Nccl.algorithm": (
        "`auto` chooses as NCCL does, on Amazon's P5 and P6 as its plug-in (the time is the mean "
        "with NCCL's own choice where that is modelled faster: [A12](assumptions.md)); `ring`, "
        "`tree`, `nvls`, `nvls_tree`, `pat`, `collnet_chain` or `collnet_direct` as NCCL_ALGO; or "
        "another algorithm of `dpsim/collectives`, on the links' own latencies"
    ),
    "Nccl.protocol": "`auto`, `ll`, `ll128` or `simple`, as NCCL_PROTO",
    "Nccl.launch": "time before any byte moves; left out: the fitted one of the kind of link",
    "Nccl.efficiency": "a further factor on the fitted share of the links' bandwidth",
    "Nccl.channels": "most channels, as NCCL_MAX_NCHANNELS; 0: as many as NCCL finds",
    "Nccl.sockets": (
        "TCP connections per channel: NCCL_SOCKET_NTHREADS times NCCL_NSOCKS_PERTHREAD; left out: "
        "as many as NCCL starts threads: 2 over Amazon's adapters, 4 over Google's, else 1"
    ),
    "Nccl.fitted": "`false`: NCCL's own estimates in place of the fitted constants",
    "Nccl.sharp": (
        "`true`: InfiniBand switches add (SHARP), as with NCCL's plug-in and "
        "NCCL_COLLNET_ENABLE=1; in groups over several nodes, with NCCL 2.14 and newer"
    ),
    "Mpi.implementation": "the library whose default rules choose the algorithm",
    "Mpi.version": 'whose rules, in quotes: `"4.0"` or `"5.0"` of Open MPI, `"3"` or `"4"` '
    "of MPICH; left out: the newest known",
    "Mpi.algorithm": "`auto`: the library's own choice; else one of its algorithms",
    "Mpi.buffers": "where gradients are: in a GPU's memory (`device`) or on a processor (`host`)",
    "Mpi.cuda_aware": "the library moves GPU buffers itself, without copies; not those it reduces",
    "Mpi.latency": "of one message, as osu_latency measures it; left out: that of the links",
    "Mpi.efficiency": "payload over a link's nominal bandwidth, as osu_bw measures it",
    "Mpi.reduce": "bytes that a process adds up in a second",
    "Mpi.copy": "rate of a copy between GPU and host; left out: that of the links between them",
    "Mpi.copy_latency": "of such a copy",
    "Mpi.shared_memory": "rate of a message between two processes of one node; left out: unknown, "
    "one rank a node is accepted",
    "ParameterServer.latency": "of one push or pull",
    "ParameterServer.bandwidth": "of a worker's and of a server's link, one way; left out: "
    "infinite",
    "ParameterServer.servers": "how many servers there are, beside the ranks",
    "ParameterServer.largest": "the fraction of all bytes on the busiest server; left out: "
    "1/servers",
    "Gloo.latency": "of one message beside the links' own: system calls, wake-ups, TCP",
    "Gloo.efficiency": "payload over the links' bandwidth",
    "Gloo.reduce": "bytes of segments that one CPU thread adds up in a second",
    "Gloo.threads": "collectives that run at once: worker threads of the process group",
    "Ideal.latency": "per operation",
    "Ideal.bandwidth": "for the full size; left out: infinite",
    "IdealRing.latency": "per message",
    "IdealRing.bandwidth": "of a rank, one way; left out: infinite",
}
#: a site is a cluster with a name
MEANING |= {
    key.replace("Cluster.", "SiteEntry."): text
    for key, text in MEANING.items()
    if key.startswith("Cluster.")
} | {"SiteEntry.name": "what links call it", "SiteEntry.devices": "not for sites"}
MEANING |= {
    key.replace("Ddp.", "ZeroRedundancyOptimizer."): text
    for key, text in MEANING.items()
    if key.startswith("Ddp.")
}

DISTRIBUTION = """\
How many times as long a computation takes, as a random number: `{kind: pareto, tail_index: 4}`.
"""

ADAPTERS = """\
`adapters` of a model; they and `trainable` hold for all models but records, which have the frozen
parameters of their scripts.  See [how to train a part of a model](howto/adapters.md).
"""

RECOVERY = """\
What the job does when something broke; left out: `restart`.  See [how failures are
described](howto/failures.md) and [how to add one](howto/add-a-recovery.md).
"""

SCHEDULE = """\
Micro-batches are `batch.accumulation`; stage c x pipeline + r is chunk c of rank r, unless the
schedule folds the pipeline to a V.
"""

COMPRESSION = """\
What gradients become before they travel: a name where its defaults do, or `{kind: NAME, …}`; `none`
is none.  `strategy.comm_hook` of `ddp` says the same.  See [how to compress
gradients](howto/compress-gradients.md) and [how to add a compression](howto/add-a-compression.md).
"""

LOADER = """\
How a loader makes batches; see [how to say what feeds the ranks](howto/feed-the-ranks.md) and
[how to add one](howto/add-a-loader.md).  All of them have the keys of the first table; those of one
alone follow.
"""

JOBS = """\
Several jobs on one cluster, in place of the single job's sections: a list, or the name of a file
below the scenario's folder that holds it.  `dpsim compare` predicts them; other commands take one
job.  Each entry has a name, a weight and sections of its own, which stand in place of the file's;
what is outside `jobs` is shared.  See [how to choose a cluster](howto/choose-a-cluster.md).
"""

SECTIONS = [
    ("cluster", sections.Cluster),
    ("sites", SiteEntry),
    ("links", SiteLink),
    ("batch", sections.Batch),
    ("batch.rebalance", Rebalance),
    ("precision", PrecisionSpec),
    ("optimizer", Optimizer),
    ("compute", Compute),
    ("parallel", Parallel),
    ("moe", Moe),
    ("context", Context),
    ("host", sections.Host),
    ("execution", Execution),
    ("input", sections.Input),
    ("input.copy", HostCopy),
    ("input.mixture", SampleKind),
    ("input.decode", Decode),
    ("input.cores", Cores),
    ("input.storage", Storage),
    ("memory", MemorySection),
    ("variability", Variability),
    ("variability.random_slow", RandomSlow),
    ("variability.shared", Shared),
    ("variability.co_tenant", CoTenant),
    ("variability.pauses", Pauses),
    ("variability.delays", Delays),
    ("variability.link_episodes", LinkEpisodes),
    ("variability.sequence_length", SequenceLength),
    ("calibrate", sections.Calibrate),
    ("price", price.Price),
    ("price.purchase", price.Purchase),
    ("price.network", price.NetworkPrice),
    ("price.storage", price.StoragePrice),
    ("energy", price.Energy),
    ("training", Training),
    ("training.sampler", Sampler),
    ("startup", sections.Startup),
    ("failures", Failures),
    ("failures.gpu", FailureCause),
    ("failures.shared", SharedCause),
    ("failures.bad", BadNodes),
    ("failures.interruptions", Interruptions),
    ("failures.preemption", Preemption),
    ("failures.maintenance", Maintenance),
    ("failures.slow", SlowNodes),
    ("failures.corruption", Corruption),
    ("checkpoint", Checkpoint),
    ("checkpoint.levels", CheckpointLevel),
    ("evaluation", Evaluation),
    ("recovery.spares", Spares),
    ("recovery.repair", Repair),
]


SERVING = """\
Files of `dpsim serve` are of another kind: they say a model, a machine, an engine and its requests,
and have none of the keys above.
"""
SERVED = [
    ("model", ServedModel),
    ("cluster", ServingCluster),
    ("serving", ServingEngine),
    ("requests", Requests),
]


def page() -> str:
    """The whole text of docs/scenario.md."""
    parts = [HEAD, "## Top level\n", table(scenario.Scenario), "## model\n"]
    parts.append(
        "One of four kinds, told apart by a key: `huggingface`, `record`, `layers`, or `name` for "
        "a bundled architecture.\n"
    )
    parts += [_names_of_models(), "### model: huggingface\n", described(HuggingFace)]
    parts += ["### model: record\n", described(FromRecord)]
    parts += ["### model: layers\n", described(Explicit), "Each entry of `layers`:\n"]
    parts += [described(LayerSpec), *_plugins("model", Plugin("models", "name"))]
    parts += ["### model: adapters\n", ADAPTERS, described(Adapters)]
    for key, cls in SECTIONS:
        parts += [f"## {key}\n", described(cls)]
        if cls is sections.Calibrate:
            parts += ["Each entry of `points`:\n", table(sections.CalibrationPoint)]
        if cls is price.Price:
            parts += ["Each entry of `machines`:\n", table(price.MachinePrice)]
    parts += ["## loader\n", LOADER, table(Loader)]
    parts += _plugins("loader", Plugin("loaders", "loader"))
    parts += ["## distribution\n", DISTRIBUTION]
    parts += _plugins("distribution", Plugin("variability", "kind"))
    parts += ["## recovery\n", RECOVERY]
    parts += _plugins("recovery", Plugin("recoveries", "kind"))
    parts += ["## schedule\n", SCHEDULE]
    parts += _plugins("schedule", Plugin("schedules", "kind"))
    parts += ["## strategy\n", *_plugins("strategy", Plugin("strategies", "kind"))]
    parts += ["## compression\n", COMPRESSION]
    parts += _plugins("compression", Plugin("compression", "kind"))
    parts += ["## collective\n", *_plugins("collective", Plugin("backends", "backend"))]
    keys = ", ".join(f"`{key}`" for key in SECTIONS_OF_A_JOB)
    parts += ["## jobs\n", JOBS, table(JobEntry), f"\nSections of a job: {keys}.\n"]
    parts += ["## Serving\n", SERVING, table(Service)]
    for key, cls in SERVED:
        parts += [f"### serving: {key}\n", described(cls)]
    parts += ["## Not modelled\n", NOT_MODELLED, "\n".join(map(_missing, missing().items())), ""]
    return "\n".join(parts)


def _names_of_models() -> str:
    """What may stand as `name` beside the architectures."""
    zoo = ", ".join(f"`{name}`" for name in zoo_names())
    files = ", ".join(f"`{name}`" for name in bundled_models())
    return (
        "`name` may also be one of these, which stand for an architecture with its keys, or "
        f"for a configuration (`dpsim/models/zoo.yaml`): {zoo}.\n\n"
        f"Bundled configurations, for `huggingface` or `name`: {files}.\n"
    )


def _missing(entry: tuple[str, Absent]) -> str:
    what, found = entry
    names = ", ".join(f"`{name}`" for name in found.names)
    return f"- **{what}**: {found.because}; {found.instead}.  Refused: {names}."


def _plugins(key: str, plugin: Plugin) -> list[str]:
    parts = []
    for name, cls in plugins.usable(plugin.folder):
        parts += [f"### {key}: {{{plugin.tag}: {name}}}\n", described(cls)]
    return parts


def described(cls: type) -> str:
    """The prose of `cls`'s docstring, then the table of its keys."""
    prose, _ = docstring(cls)
    return f"{prose}\n\n{table(cls)}" if dataclasses.fields(cls) else f"{prose}\n"


def table(cls: type) -> str:
    rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
    hints = get_type_hints(cls, include_extras=True)
    _, texts = docstring(cls)
    fields = field_infos(cls)
    common = {field.name for field in dataclasses.fields(Tunable)} if cls is not Tunable else set()
    if issubclass(cls, SavingPace):
        common = {field.name for field in dataclasses.fields(SavingPace)}
    for name, field in sorted(fields.items(), key=lambda one: one[0] in common):
        key = field.alias or name
        meaning = MEANING.get(f"{cls.__name__}.{key}") or texts.get(name) or texts.get(key)
        if meaning is None:
            raise KeyError(f"describe {cls.__name__}.{key} in MEANING or in its docstring")
        cells = (f"`{key}`", value_of(hints[name]), default_of(field, hints[name]), meaning)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def docstring(cls: type) -> tuple[str, dict[str, str]]:
    """Prose, and the texts of lines of the form ``key   text`` with their continuations."""
    prose: list[str] = []
    texts: dict[str, str] = {}
    for base in cls.__mro__[-1:0:-1]:
        if issubclass(
            base, Compression | Ddp | Recovery | Loader | SavingPace | Tunable
        ):  # settings are in part inherited
            texts |= docstring(base)[1]
    keys: list[str] = []
    for line in inspect.cleandoc(cls.__doc__ or "").replace("``", "`").splitlines():
        entry = re.match(r"(\w+(?:, \w+)*) {2,}(\S.*)", line)
        if entry:
            keys = entry[1].split(", ")
            texts.update(dict.fromkeys(keys, entry[2]))
        elif keys and line.startswith(" "):
            texts.update({key: f"{texts[key]} {line.strip()}" for key in keys})
        else:
            keys = []
            prose.append(line)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(prose)).strip(), texts


def value_of(hint: Any) -> str:
    """What a value may be, for people."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(args[0], args[1:])
    if origin is not None:
        return _of_several(origin, args)
    section = next((key for key, cls in SECTIONS if cls is hint), None)
    if section:
        return f"mapping, see [{section}](#{anchor(section)})"
    return _PLAIN.get(hint, "mapping, see below")


_PLAIN = {bool: "true, false", str: "text", int: "whole number", float: "number", Any: "anything"}


def _of_several(origin: Any, args: tuple[Any, ...]) -> str:
    if origin is Literal:
        return ", ".join(f"`{option}`" for option in args)
    if origin in (Union, types.UnionType):
        return " or ".join(value_of(arg) for arg in args if arg is not type(None))
    if origin is dict:
        return f"mapping from ({value_of(args[0])}) to ({value_of(args[1])})"
    return f"list of: {value_of(args[0])}"


def _annotated(base: Any, marks: tuple[Any, ...]) -> str:
    for mark in marks:
        for kind, said in _MARKS.items():
            if isinstance(mark, kind):
                return said(mark)
    if base is TorchVersion:
        return 'version in quotes, for example `"2.13"`'
    return value_of(base)


def _quantity(mark: Unit) -> str:
    example = mark.json_schema()["examples"][0]
    return mark.interval() + ("" if mark.dimension == "1" else f", for example `{example}`")


def _plugin(mark: Plugin) -> str:
    known = ", ".join(f"`{name}`" for name in plugins.names(mark.folder))
    keys = {"variability": "distribution", "backends": "collective", "strategies": "strategy"}
    keys |= {"schedules": "schedule", "compression": "compression", "recoveries": "recovery"}
    keys |= {"loaders": "loader"}
    key = keys[mark.folder]
    chosen = "`none`, a name or a " if isinstance(mark, type(get_args(Wanted)[1])) else ""
    return f"{chosen}mapping with `{mark.tag}`: {known}; see [{key}](#{key})"


#: what a mark of an annotated type says about its values
_MARKS: dict[type, Callable[[Any], str]] = {
    Unit: _quantity,
    Check: lambda mark: f"whole number, {mark.low:,} … {mark.high:,}",
    Plugin: _plugin,
    Drawn: lambda mark: f"{mark.unit.interval()}, or a [distribution](#distribution)",
    Priced: lambda mark: f"amount of money, for example `{mark.example}`",
    ModelSource: lambda mark: "mapping, see [model](#model)",
    sections.InputSource: lambda mark: "mapping, see [input](#input) and [loader](#loader)",
    DecodeTime: lambda mark: (
        "time, for example `8 ms`, or a mapping, see [input.decode](#inputdecode)"
    ),
    Every: lambda mark: (
        f"time, for example `20 min`, or `500 steps`{', or `best`' if mark.searched else ''}"
    ),
    PerTime: lambda mark: "share in a time, for example `5 %/h`",
    sections.Rate: lambda mark: (
        "throughput of samples, images, sequences or tokens, such as `802.9 images/s`"
    ),
}


def default_of(field: Any, hint: Any) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if value is PydanticUndefined or value is None or value in ("", ()):
        return "–"
    if dataclasses.is_dataclass(value):
        return "its own defaults"
    unit = next((mark for mark in get_args(hint) if isinstance(mark, Unit)), None)
    if unit is not None and unit.dimension != "1":
        return f"`{show(value, unit.dimension)}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only say whether it is current")
    text = page()
    if parser.parse_args().check:
        return int(not TARGET.is_file() or TARGET.read_text(encoding="utf-8") != text)
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
