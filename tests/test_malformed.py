"""Malformed input: exit code 2, one sentence that names file, line and key, and nothing else.

`VALUES` changes one section of a small scenario that is fine, `BOXES` of one on a machine,
`FILES` is about whole files, `COMMANDS` about ``--set``.  `WORDS` holds messages word for word.
"""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dpsim.cli import _run
from dpsim.core.plugins import names
from dpsim.describe.sections import Cluster

LAYER = "{name: a, parameters: 1000, forward: 1 ms, backward: 2 ms}"
TOY = {
    "model": f"{{layers: [{LAYER}]}}",
    "cluster": "{ranks: 2}",
    "collective": "{backend: ideal, latency: 1 ms, bandwidth: 10 MiB/ms}",
    "strategy": "{kind: ddp}",
    "optimizer": "{kind: none}",
}
BOX = {
    "model": "{name: resnet50}",
    "cluster": "{machine: dgx-h100, nodes: 2}",
    "strategy": "{kind: ddp}",
    "optimizer": "{kind: adam}",
    "batch": "{per_device: 32}",
}
IDEAL = "{{backend: ideal, latency: {}}}"
RATE = "{{backend: ideal, bandwidth: {}}}"
GRID = ", ".join(str(number) for number in range(1, 102))
JARGON = ("Traceback", "For further information", "type=", "Input should be", "validation error")
JARGON += (
    "pydantic",
    "value_error",
    "Errno",
    "<class",
    "NoneType",
    "object at 0x",
    "internal error",
)

Case = tuple[str, dict[str, str], str, str]


def layers(*changes: str) -> dict[str, str]:
    return {"model": f"{{layers: [{', '.join(changes)}]}}"}


def layer(rest: str, name: str = "a") -> dict[str, str]:
    return layers(f"{{name: {name}, {rest}}}")


# name, changed sections, the key at fault ("" for the whole file), what the message says
VALUES: list[Case] = [
    ("unit-less time", {"collective": IDEAL.format("1")}, "collective.latency", "1 has no unit"),
    (
        "unit-less text",
        {"collective": IDEAL.format('"1"')},
        "collective.latency",
        "'1' has no unit",
    ),
    ("unit-less rate", {"collective": RATE.format("10")}, "collective.bandwidth", "10 has no unit"),
    ("time for a rate", {"collective": RATE.format("10 ms")}, "collective.bandwidth", "10 ms"),
    ("size for a rate", {"collective": RATE.format("10 GB")}, "collective.bandwidth", "10 GB"),
    ("rate for a time", {"collective": IDEAL.format("1 GB/s")}, "collective.latency", "1 GB/s"),
    ("Gbps", {"collective": RATE.format("10 Gbps")}, "collective.bandwidth", "write 'Gbit/s'"),
    ("Gb/s", {"collective": RATE.format("10 Gb/s")}, "collective.bandwidth", "write 'Gbit/s'"),
    ("Gbps/s", {"collective": RATE.format("25 Gbps/s")}, "collective.bandwidth", "'Gbit/s'"),
    (
        "unknown unit",
        {"collective": IDEAL.format("1 fortnight")},
        "collective.latency",
        "fortnight",
    ),
    ("sec", {"collective": IDEAL.format("1 sec")}, "collective.latency", "write 's', not 'sec'"),
    (".nan", {"collective": IDEAL.format(".nan")}, "collective.latency", "not finite"),
    (".inf", {"collective": IDEAL.format(".inf")}, "collective.latency", "not finite"),
    ("-.inf", {"collective": IDEAL.format("-.inf")}, "collective.latency", "not finite"),
    ("nan text", {"collective": IDEAL.format("nan")}, "collective.latency", "not a number"),
    ('"nan"', {"collective": IDEAL.format('"nan"')}, "collective.latency", "not a number"),
    ("inf s", {"collective": IDEAL.format("inf s")}, "collective.latency", "not a number"),
    ("negative time", {"collective": IDEAL.format("-1 ms")}, "collective.latency", "0 … 1e+09 s"),
    ("negative rate", {"collective": RATE.format("-1 GB/s")}, "collective.bandwidth", "not in"),
    ("zero rate", {"collective": RATE.format("0 GB/s")}, "collective.bandwidth", "not in 0 (excl"),
    ("minus zero rate", {"collective": RATE.format("-0 GB/s")}, "collective.bandwidth", "not in"),
    ("rate below floats", {"collective": RATE.format("1e-400 B/s")}, "collective.bandwidth", "not"),
    ("1e400", {"collective": IDEAL.format("1e400")}, "collective.latency", "out of range"),
    ("1e400 s", {"collective": IDEAL.format("1e400 s")}, "collective.latency", "out of range"),
    ("1e300 s", {"collective": IDEAL.format("1e300 s")}, "collective.latency", "is not in 0 …"),
    ("1e999999999 s", {"collective": IDEAL.format("1e999999999 s")}, "collective.latency", "range"),
    ("true for a time", {"collective": IDEAL.format("true")}, "collective.latency", "5 us"),
    ("list for a time", {"collective": IDEAL.format("[1 ms]")}, "collective.latency", "5 us"),
    ("mapping for a time", {"collective": IDEAL.format("{a: 1}")}, "collective.latency", "5 us"),
    ("null for a time", {"collective": IDEAL.format("null")}, "collective.latency", "nothing"),
    ("empty text for a time", {"collective": IDEAL.format('""')}, "collective.latency", "number"),
    ("Unicode digits", {"collective": IDEAL.format("\u0661 s")}, "collective.latency", "number"),
    ("ranks 0", {"cluster": "{ranks: 0}"}, "cluster.ranks", "0 is not in 1 … 1,048,576"),
    ('ranks "2"', {"cluster": '{ranks: "2"}'}, "cluster.ranks", "not a whole number"),
    ("ranks 1.5", {"cluster": "{ranks: 1.5}"}, "cluster.ranks", "1.5"),
    ("ranks 2.0", {"cluster": "{ranks: 2.0}"}, "cluster.ranks", "whole number"),
    ("ranks -2", {"cluster": "{ranks: -2}"}, "cluster.ranks", "-2 is not in"),
    ("ranks true", {"cluster": "{ranks: true}"}, "cluster.ranks", "whole number"),
    ("ranks 2^53+1", {"cluster": "{ranks: 9007199254740993}"}, "cluster.ranks", "not in"),
    ("ranks 2^63", {"cluster": "{ranks: 9223372036854775808}"}, "cluster.ranks", "not in"),
    ("ranks 10^400", {"cluster": f"{{ranks: 1{'0' * 400}}}"}, "cluster.ranks", "30 digits"),
    ("ranks octal", {"cluster": "{ranks: 010}"}, "cluster.ranks", "starts with 0"),
    ("ranks hex", {"cluster": "{ranks: 0x10}"}, "cluster.ranks", "'0x10'"),
    ("ranks list", {"cluster": "{ranks: [2]}"}, "cluster.ranks", "whole number"),
    ("ranks null", {"cluster": "{ranks: null}"}, "cluster", "needs a machine, or ranks"),
    ("cluster a number", {"cluster": "2"}, "cluster", "mapping"),
    ("cluster a list", {"cluster": "[2]"}, "cluster", "mapping"),
    ("cluster null", {"cluster": ""}, "cluster", "mapping"),
    ("nodes without machine", {"cluster": "{nodes: 2}"}, "cluster", "needs a machine"),
    ("device without machine", {"cluster": "{ranks: 2, device: h100-sxm}"}, "cluster", "machine"),
    (
        "oversubscription, no machine",
        {"cluster": "{ranks: 2, oversubscription: 2}"},
        "cluster.oversubscription",
        "needs a machine",
    ),
    ("top key", {"colective": "{backend: free}"}, "colective", "did you mean 'collective'?"),
    ("foreign key", {"zebra": "1"}, "zebra", "unknown key"),
    ("cluster key", {"cluster": "{ranks: 2, node: 1}"}, "cluster.node", "did you mean 'nodes'?"),
    (
        "backend key",
        {"collective": "{backend: ideal, latncy: 1 s}"},
        "collective.latncy",
        "did you mean 'latency'?",
    ),
    (
        "strategy key",
        {"strategy": "{kind: ddp, bucket_cap: 25}"},
        "strategy.bucket_cap",
        "did you mean 'bucket_cap_mb'?",
    ),
    ("batch key", {"batch": "{per_devices: 1}"}, "batch.per_devices", "'per_device'"),
    ("globl", {"batch": "{globl: 8}"}, "batch.globl", "did you mean 'global'?"),
    ("layer key", layer("forwrd: 1 ms, backward: 1 ms"), "model.layers[0].forwrd", "'forward'"),
    ("model key", {"model": f"{{layer: [{LAYER}]}}"}, "model", "layers"),
    ("optimizer key", {"optimizer": "{knd: adam}"}, "optimizer.knd", "'kind'"),
    ("variability key", {"variability": "{jiter: 2 %}"}, "variability.jiter", "'jitter'"),
    ("calibrate key", {"calibrate": "{step_tme: 1 s}"}, "calibrate.step_tme", "'step_time'"),
    ("precision key", {"precision": "{param: fp32}"}, "precision.param", "'parameters'"),
    ("price key", {"price": "{per_device_hr: 2 usd/h}"}, "price.per_device_hr", "per_device_hour"),
    ("number key", {"2": "3"}, "", "[2]: unknown key"),
    ("strategy missing kind", {"strategy": "{}"}, "strategy.kind", "is missing; one of "),
    ("strategy text", {"strategy": "ddp"}, "strategy", "mapping with 'kind'"),
    ("strategy null", {"strategy": ""}, "strategy", "mapping with 'kind'"),
    ("strategy unknown", {"strategy": "{kind: dpp}"}, "strategy.kind", "did you mean 'ddp'?"),
    ("strategy 3", {"strategy": "{kind: 3}"}, "strategy.kind", "not a name"),
    ("strategy ../x", {"strategy": "{kind: ../ddp}"}, "strategy.kind", "no '../ddp'"),
    ("backend unknown", {"collective": "{backend: ideel}"}, "collective.backend", "'ideal'?"),
    ("backend missing", {"collective": "{latency: 1 s}"}, "collective.backend", "is missing"),
    ("backend null", {"collective": ""}, "", "without a machine"),
    ("nccl without machine", {"collective": "{backend: nccl}"}, "collective", "needs a machine"),
    ("torch unquoted", {"strategy": "{kind: ddp, torch: 2.13}"}, "strategy.torch", "in quotes"),
    ("torch words", {"strategy": "{kind: ddp, torch: newest}"}, "strategy.torch", "version"),
    ("bucket cap 0", {"strategy": "{kind: ddp, bucket_cap_mb: -1}"}, "strategy.bucket_cap_mb", ""),
    (
        "bool as text",
        {"strategy": "{kind: ddp, find_unused_parameters: 'yes'}"},
        "strategy.find_unused_parameters",
        "true or false",
    ),
    ("batch 0", {"batch": "{per_device: 0}"}, "batch.per_device", "0 is not in 1 …"),
    (
        "batch and micro-batch",
        {"batch": "{per_device: 2, global: 10}"},
        "batch.global",
        "10 is not a multiple of 2 per_device x 2 replicas = 4; 8 and 12 are accepted",
    ),
    (
        "micro-batches above the batch",
        {"batch": "{per_device: 3, global: 2}"},
        "batch.global",
        "= 6; 6 is accepted",
    ),
    (
        "three numbers of a batch",
        {"batch": "{per_device: 1, global: 4, accumulation: 2}"},
        "batch.accumulation",
        "follows from global and per_device",
    ),
    (
        "a batch by speed of both",
        {"batch": "{per_device: 1, global: 4, by_speed: true}"},
        "batch.by_speed",
        "not with both",
    ),
    ("batch not divisible", {"batch": "{global: 7, accumulation: 2}"}, "batch", "not a multiple"),
    ("batch below ranks", {"batch": "{global: 1}"}, "batch.global", "without a sample"),
    ("accumulation 0", {"batch": "{accumulation: 0}"}, "batch.accumulation", "0 is not in 1 …"),
    ("batch list", {"batch": "[1]"}, "batch", "mapping"),
    (
        "precision dtype",
        {"precision": "{parameters: fp23, compute: fp32}"},
        "precision.parameters",
        "'fp32'",
    ),
    ("optimizer kind", {"optimizer": "{kind: adamm}"}, "optimizer.kind", "'adam'"),
    ("engine", {"engine": "fast"}, "engine", "none of auto, event, vectorised"),
    ("recompute", {"recompute": "some"}, "recompute", "none, selective, selective_op, moe, full"),
    ("detail", {"detail": "round"}, "detail", "'rounds'"),
    ("vectorised rounds", {"engine": "vectorised", "detail": "rounds"}, "", "engine: event"),
    ("iteration 0", {"iteration": "0"}, "iteration", "0 is not in 1 … 10,000"),
    ("iteration first", {"iteration": "first"}, "iteration", "steady"),
    ("seed -1", {"seed": "-1"}, "seed", "-1 is not in 0 …"),
    ("title a number", {"title": "3"}, "title", "text"),
    ("efficiency 120 %", {"compute": "{efficiency: 120 %}"}, "compute.efficiency", "not in 0"),
    ("efficiency 0", {"compute": "{efficiency: 0}"}, "compute.efficiency", "not in 0 (excluded)"),
    ("jitter -1", {"variability": "{jitter: -1}"}, "variability.jitter", "-1 is not in"),
    ("slow rank", {"variability": "{slow_ranks: {x: 2}}"}, "variability.slow_ranks", ""),
    ("price euro", {"price": "{per_device_hour: 2 eur/h}"}, "price.per_device_hour", "usd/h"),
    ("host -1 s", {"host": "{serial: -1 s}"}, "host.serial", "-1 s is not in"),
    ("no layers", {"model": "{layers: []}"}, "model", "1 … 100,000 layers"),
    ("layers a mapping", {"model": "{layers: {a: 1}}"}, "model.layers", "list"),
    ("layers a number", {"model": "{layers: 3}"}, "model.layers", "list"),
    ("a layer a number", {"model": "{layers: [3]}"}, "model.layers[0]", "mapping"),
    ("no forward", layer("backward: 1 ms"), "model.layers[0]", "forward is missing"),
    ("no backward", layer("forward: 1 ms"), "model.layers[0]", "backward is missing"),
    (
        "both backwards",
        layer("forward: 1 s, backward: 1 s, backward_input: 1 s"),
        "model.layers[0]",
        "not both",
    ),
    (
        "half a backward",
        layer("forward: 1 s, backward_input: 1 s"),
        "model.layers[0]",
        "backward_weight",
    ),
    ("no name", layers("{forward: 1 s, backward: 1 s}"), "model.layers[0].name", "is missing"),
    ("name a number", layer("forward: 1 s, backward: 1 s", "3"), "model.layers[0].name", "text"),
    (
        "parameters -1",
        layer("parameters: -1, forward: 1 s, backward: 1 s"),
        "model.layers[0].parameters",
        "-1 is not in",
    ),
    (
        "parameters 1e6",
        layer("parameters: 1e6, forward: 1 s, backward: 1 s"),
        "model.layers[0].parameters",
        "whole number",
    ),
    ("dtype", layer("dtype: fp17, forward: 1 s, backward: 1 s"), "model.layers[0].dtype", "'fp16'"),
    ("two of a name", layers(LAYER, LAYER), "model", "'a'"),
    (
        "order unknown",
        {"model": f"{{layers: [{LAYER}], forward_order: [b]}}"},
        "model",
        "no layer is called 'b'",
    ),
    (
        "order misses one",
        {"model": f"{{layers: [{LAYER}, {LAYER.replace('a,', 'b,', 1)}], forward_order: [b]}}"},
        "model",
        "forward_order",
    ),
    ("model null", {"model": ""}, "model", "needs a mapping"),
    ("model text", {"model": "resnet50"}, "model", "needs a mapping"),
    ("model empty", {"model": "{}"}, "model", "'layers'"),
    ("architecture", {"model": "{name: resnet51}"}, "model.name", "did you mean 'resnet'?"),
    ("architecture without machine", {"model": "{name: resnet50}"}, "", "machine"),
    ("jobs", {"jobs": "[]"}, "jobs", "dpsim compare"),
    ("training key", {"training": "{epoch: 1}"}, "training.epoch", "did you mean 'epochs'?"),
    ("training of tokens", {"training": "{tokens: 1}"}, "training.tokens", "not made of tokens"),
    ("two trainings", {"training": "{tokens: 1, samples: 1}"}, "training", "exactly one of"),
    ("energy of a toy", {"energy": "{pue: 1.2}"}, "energy", "needs a machine"),
    ("energy pue", {"energy": "{pue: 0.9}"}, "energy.pue", "not in 1"),
    ("sweep no values", {"sweep": "{cluster.ranks: []}"}, "sweep.cluster.ranks", "empty list"),
    ("sweep no points", {"sweep": "[]"}, "sweep", "no points"),
    ("sweep no keys", {"sweep": "{}"}, "sweep", "no points"),
    ("sweep scalar", {"sweep": "{cluster.ranks: 2}"}, "sweep.cluster.ranks", "list"),
    ("sweep number", {"sweep": "3"}, "sweep", "mapping"),
    ("sweep unknown key", {"sweep": "{cluster.rank: [1]}"}, "sweep.cluster.rank", "'ranks'?"),
    ("sweep bad value", {"sweep": "{cluster.ranks: [1, 0]}"}, "sweep.cluster.ranks", "0 is not in"),
    ("sweep bad point", {"sweep": "[{cluster.ranks: 1}, {cluster.ranks: x}]"}, "sweep", "'x'"),
    ("sweep in itself", {"sweep": "{sweep: [1]}"}, "sweep.sweep", ""),
    ("sweep into a scalar", {"sweep": "{title.x: [1]}", "title": "t"}, "sweep.title.x", "no such"),
    (
        "sweep too many",
        {"sweep": f"{{cluster.ranks: [{GRID}], seed: [{GRID}]}}"},
        "sweep",
        "10,201 points; at most 10,000",
    ),
    ("calibrate 0 s", {"calibrate": "{step_time: 0 s}"}, "calibrate", "no measurement"),
    ("calibrate nothing", {"calibrate": "{}"}, "calibrate", "exactly one of"),
    (
        "calibrate twice",
        {"calibrate": "{step_time: 1 s, throughput: 3 images/s}"},
        "calibrate",
        "exactly one of",
    ),
    (
        "calibrate words",
        {"calibrate": "{throughput: fast}"},
        "calibrate.throughput",
        "802.9 images",
    ),
    ("calibrate unit", {"calibrate": "{throughput: 3 cats/s}"}, "calibrate.throughput", "802.9"),
    (
        "calibrate 0/s",
        {"calibrate": "{throughput: 0 images/s}"},
        "calibrate.throughput",
        "not in 0",
    ),
    ("calibrate number", {"calibrate": "{throughput: 3}"}, "calibrate.throughput", "'3 images/s'"),
    (
        "calibrate ranks 0",
        {"calibrate": "{step_time: 1 s, ranks: 0}"},
        "calibrate.ranks",
        "0 is not",
    ),
    ("calibrate too fast", {"calibrate": "{step_time: 1 us}"}, "calibrate", "shorter than"),
    ("calibrate file gone", {"calibrate": "{file: no.csv}"}, "calibrate.file", "no file 'no.csv'"),
    ("calibrate file out", {"calibrate": "{file: ../no.csv}"}, "calibrate.file", "outside"),
    ("measured gone", {"measured": "no.csv"}, "measured", "no file 'no.csv'"),
    ("measured absolute", {"measured": "/etc/passwd"}, "measured", "outside"),
    ("measured a folder", {"measured": "."}, "measured", "no file"),
    (
        "too many events",
        {
            "cluster": "{ranks: 1048576}",
            "engine": "event",
            "variability": "{jitter: 2 %, steps: 10000}",
        },
        "engine",
        "would take about",
    ),
]
FOUR = {
    "model": f"{{layers: [{', '.join(LAYER.replace('a,', f'l{k},', 1) for k in range(4))}]}}",
    "cluster": "{ranks: 4}",
}
# the same of meshes, schedules, variability, money, training and every strategy
MORE: list[Case] = [
    ("tensor 0", {"parallel": "{tensor: 0}"}, "parallel.tensor", "0 is not in 1 … 1,024"),
    (
        "tensor 3 of 2",
        {"parallel": "{tensor: 3}"},
        "parallel",
        "tensor 3 x pipeline 1 does not divide 2 ranks; 3 would",
    ),
    ("parallel a number", {"parallel": "2"}, "parallel", "2 where a mapping is needed"),
    (
        "parallel key",
        {"parallel": "{pipelin: 2}"},
        "parallel.pipelin",
        "unknown key; did you mean 'pipeline'?",
    ),
    (
        "data does not fit",
        FOUR | {"parallel": "{pipeline: 2, data: 3}"},
        "parallel.data",
        "tensor 1 x pipeline 2 x data 3 is 6, not 4 ranks; data: 2",
    ),
    (
        "order twice",
        FOUR | {"parallel": "{pipeline: 2, order: [data, data, tensor]}"},
        "parallel.order",
        "names every one of tensor, data and pipeline once",
    ),
    (
        "order short",
        FOUR | {"parallel": "{pipeline: 2, order: [data]}"},
        "parallel.order",
        "names every one of tensor, data and pipeline once",
    ),
    (
        "sequence without tensor",
        FOUR | {"parallel": "{sequence_parallel: true}"},
        "parallel.sequence_parallel",
        "needs tensor > 1",
    ),
    (
        "schedule alone",
        {"schedule": "{kind: gpipe}"},
        "schedule",
        "needs parallel: {pipeline: …} of at least 2",
    ),
    (
        "schedule unknown",
        FOUR | {"parallel": "{pipeline: 2}", "schedule": "{kind: 1f1b}"},
        "schedule.kind",
        "no '1f1b' in schedules",
    ),
    (
        "schedule text",
        FOUR | {"parallel": "{pipeline: 2}", "schedule": "gpipe"},
        "schedule",
        "'gpipe' where a mapping with 'kind' is needed",
    ),
    (
        "chunks 0",
        FOUR | {"parallel": "{pipeline: 2}", "schedule": "{kind: interleaved_1f1b, chunks: 0}"},
        "schedule.chunks",
        "0 is not in 1 … 1,024",
    ),
    (
        "chunks of gpipe",
        FOUR | {"parallel": "{pipeline: 2}", "schedule": "{kind: gpipe, chunks: 2}"},
        "schedule.chunks",
        "unknown key",
    ),
    (
        "interleaved, odd",
        FOUR
        | {
            "parallel": "{pipeline: 2}",
            "schedule": "{kind: interleaved_1f1b}",
            "batch": "{accumulation: 5}",
        },
        "schedule",
        "5 micro-batches cannot be dealt in 2 equal rounds to 2",
    ),
    (
        "dualpipe_v, few",
        FOUR
        | {
            "parallel": "{pipeline: 2}",
            "schedule": "{kind: dualpipe_v}",
            "batch": "{accumulation: 2}",
        },
        "schedule",
        "2 micro-batches over 2 ranks; dualpipe_v accepts at least",
    ),
    (
        "too many stages",
        FOUR
        | {
            "parallel": "{pipeline: 4}",
            "schedule": "{kind: looped_bfs, chunks: 4}",
            "batch": "{accumulation: 4}",
        },
        "parallel.pipeline",
        "16 stages of a model of 4 layers; at most 4 stages",
    ),
    ("stages alone", {"stages": "[[a]]"}, "stages", "needs parallel: {pipeline: …} of at least 2"),
    (
        "stages text",
        FOUR | {"parallel": "{pipeline: 2}", "stages": "even"},
        "stages",
        "'even' is not accepted",
    ),
    (
        "stages too few",
        FOUR | {"parallel": "{pipeline: 2}", "stages": "[[l0, l1, l2, l3]]"},
        "stages",
        "1 stages where pipeline x chunks is 2",
    ),
    (
        "stage empty",
        FOUR | {"parallel": "{pipeline: 2}", "stages": "[[l0, l1, l2, l3], []]"},
        "stages[1]",
        "a stage needs a layer",
    ),
    (
        "stages unknown layer",
        FOUR | {"parallel": "{pipeline: 2}", "stages": "[[l0, l1], [l2, l9]]"},
        "stages[1]",
        "no layer is called 'l9'",
    ),
    (
        "stages out of order",
        FOUR | {"parallel": "{pipeline: 2}", "stages": "[[l2, l3], [l0, l1]]"},
        "stages",
        "name every layer once, in the order of forward",
    ),
    (
        "stages miss one",
        FOUR | {"parallel": "{pipeline: 2}", "stages": "[[l0], [l2, l3]]"},
        "stages",
        "name every layer once, in the order of forward; l1 is",
    ),
    (
        "pipeline of local steps",
        FOUR | {"parallel": "{pipeline: 2}", "strategy": "{kind: local_sgd}"},
        "strategy.kind",
        "local_sgd is not modelled together with tensor, pipeline or expert",
    ),
    (
        "iteration of a pipeline",
        FOUR | {"parallel": "{pipeline: 2}", "iteration": "1"},
        "iteration",
        "first iterations are not modelled with tensor or pipeline",
    ),
    (
        "jitter kind",
        {"variability": "{jitter: {kind: parto}}"},
        "variability.jitter.kind",
        "no 'parto' in variability",
    ),
    (
        "jitter no kind",
        {"variability": "{jitter: {spread: 1}}"},
        "variability.jitter.kind",
        "is missing; one of bernoulli, empirical, exponential,",
    ),
    (
        "gamma 0",
        {"variability": "{jitter: {kind: gamma, spread: 0}}"},
        "variability.jitter.spread",
        "0 is not in 0.001 … 10",
    ),
    (
        "pareto 1",
        {"variability": "{jitter: {kind: pareto, tail_index: 1}}"},
        "variability.jitter.tail_index",
        "1 is not in 1 (excluded) … 1e+06",
    ),
    (
        "uniform backwards",
        {"variability": "{jitter: {kind: uniform, low: 2, high: 1}}"},
        "variability.jitter.high",
        "1 is below low, 2",
    ),
    (
        "bernoulli 2",
        {"variability": "{jitter: {kind: bernoulli, probability: 2, factor: 2}}"},
        "variability.jitter.probability",
        "2 is not in 0 (excluded) … 1",
    ),
    (
        "empirical gone",
        {"variability": "{jitter: {kind: empirical, file: no.csv}}"},
        "variability",
        "no.csv: there is no such file",
    ),
    (
        "empirical outside",
        {"variability": "{jitter: {kind: empirical, file: ../no.csv}}"},
        "variability",
        "'../no.csv' lies outside the scenario's own folder",
    ),
    (
        "slow factor 0",
        {"variability": "{slow_ranks: {0: 0}}"},
        "variability.slow_ranks[0]",
        "0 is not in 0 (excluded) … 1e+06",
    ),
    (
        "slow rank -1",
        {"variability": "{slow_ranks: {-1: 2}}"},
        "variability.slow_ranks[-1]",
        "-1 is not in 0 … 1,048,575",
    ),
    (
        "slow nodes of a toy",
        {"variability": "{slow_nodes: {0: 2}}"},
        "variability",
        "a cluster without a machine has no nodes or racks",
    ),
    (
        "random_slow of nodes",
        {"variability": "{random_slow: {probability: 0.1, factor: 2, per: node}}"},
        "variability",
        "a cluster without a machine has no nodes or racks",
    ),
    (
        "random_slow per day",
        {"variability": "{random_slow: {probability: 0.1, factor: 2, per: day}}"},
        "variability.random_slow.per",
        "'day' is none of step, rank, node, rack",
    ),
    (
        "random_slow 110 %",
        {"variability": "{random_slow: {probability: 110 %, factor: 2}}"},
        "variability.random_slow.probability",
        "110 % is not in 0 (excluded) … 1",
    ),
    (
        "share 100 %",
        {"variability": "{co_tenant: {share: 1, probability: 0.5}}"},
        "variability.co_tenant.share",
        "1 is not in 0 … 0.99",
    ),
    (
        "pauses without when",
        {"variability": "{pauses: {duration: 1 s}}"},
        "variability.pauses",
        "needs either every (steps) or interval (seconds)",
    ),
    (
        "pauses both",
        {"variability": "{pauses: {duration: 1 s, every: 2, interval: 1 s}}"},
        "variability.pauses",
        "needs either every (steps) or interval (seconds)",
    ),
    (
        "pauses beyond steps",
        {"variability": "{pauses: {duration: 1 s, every: 500}}"},
        "variability.steps",
        "100 steps don't hold one period of pauses; at least 500 do",
    ),
    (
        "pause unit-less",
        {"variability": "{pauses: {duration: 1, every: 2}}"},
        "variability.pauses.duration",
        "1 has no unit",
    ),
    (
        "lengths of nothing",
        {"variability": "{sequence_length: {}}"},
        "variability.sequence_length",
        "needs either spread (lognormal) or file (a histogram)",
    ),
    (
        "lengths cure",
        {"variability": "{sequence_length: {spread: 0.5, cure: aspirin}}"},
        "variability.sequence_length.cure",
        "'aspirin' is none of none, packing, sorting, bucketing",
    ),
    (
        "lengths padded and packed",
        {"variability": "{sequence_length: {spread: 0.5, padded: true, cure: packing}}"},
        "variability.sequence_length.padded",
        "packs have no padding; leave one of them out",
    ),
    (
        "preset",
        {"variability": "{preset: megascal}"},
        "variability.preset",
        "'megascal' is none of megascale, greyhound, llama3; did",
    ),
    (
        "link episodes",
        {"variability": "{link_episodes: {}}"},
        "variability.link_episodes.factor",
        "is missing",
    ),
    (
        "steps 0",
        {"variability": "{jitter: 0.1, steps: 0}"},
        "variability.steps",
        "0 is not in 1 … 100,000",
    ),
    (
        "shared per cabinet",
        {"variability": "{shared: {factor: {kind: gamma, spread: 0.1}, per: cabinet}}"},
        "variability.shared.per",
        "'cabinet' is none of node, rack, all",
    ),
    (
        "shared a number",
        {"variability": "{shared: {factor: 2, per: all}}"},
        "variability.shared.factor",
        "'2' where a mapping with 'kind' is needed",
    ),
    (
        "price unit-less",
        {"price": "{per_device_hour: 2}"},
        "price.per_device_hour",
        "'2' is not an amount with a currency",
    ),
    (
        "price negative",
        {"price": "{per_device_hour: -2 usd/h}"},
        "price.per_device_hour",
        "'-2 usd/h' is not an amount with a currency",
    ),
    (
        "price nothing",
        {"price": "{}"},
        "price",
        "needs exactly one of per_device_hour, per_node_hour,",
    ),
    (
        "price twice",
        {"price": "{per_device_hour: 2 usd/h, per_node_hour: 9 usd/h}"},
        "price",
        "needs exactly one of per_device_hour, per_node_hour,",
    ),
    (
        "price file gone",
        {"price": "{file: no.csv, row: a, as_of: 2026-01-01, source: x}"},
        "price.file",
        "no file 'no.csv' beside the scenario",
    ),
    (
        "price nan",
        {"price": "{per_device_hour: nan usd/h}"},
        "price.per_device_hour",
        "'nan usd/h' is not an amount with a currency",
    ),
    (
        "purchase 0 years",
        {"price": "{purchase: {per_device: 9 usd, years: 0}}"},
        "price.purchase.years",
        "0 is not in 0 (excluded) … 100",
    ),
    (
        "row without file",
        {"price": "{row: a}"},
        "price",
        "needs exactly one of per_device_hour, per_node_hour,",
    ),
    ("energy key", {"energy": "{puee: 1.2}"}, "energy.puee", "unknown key; did you mean 'pue'?"),
    (
        "energy price per h",
        {"energy": "{price: 1 usd/h}"},
        "energy.price",
        "'1 usd/h': write for example '0.12 usd/kWh'",
    ),
    (
        "training nothing",
        {"training": "{}"},
        "training",
        "needs exactly one of tokens, samples, epochs,",
    ),
    ("training 0", {"training": "{samples: 0}"}, "training.samples", "0 is not in 1"),
    ("training inf", {"training": "{samples: .inf}"}, "training.samples", "'.inf' is not finite"),
    (
        "minimum_steps alone",
        {"training": "{minimum_steps: 10}"},
        "training",
        "minimum_steps and critical_batch belong together",
    ),
    (
        "task unknown",
        {"training": "{task: resnet5}"},
        "training.task",
        "no task 'resnet5'; did you mean 'resnet50'?",
    ),
    (
        "epochs of what",
        {"training": "{epochs: 3}"},
        "training.samples_per_epoch",
        "is missing: how many samples is an epoch?",
    ),
    (
        "rule",
        {"training": "{samples: 9, rule: cubic}"},
        "training.rule",
        "'cubic' is none of linear, square_root, lars, lamb",
    ),
    ("jobs key", {"jobs": "{}"}, "jobs", "several jobs are predicted by `dpsim compare`; here a"),
    (
        "zero stage 4",
        {"strategy": "{kind: zero, stage: 4}"},
        "strategy.stage",
        "4 is none of 1, 2, 3",
    ),
    (
        "zero stage 3's of 1",
        {"strategy": "{kind: zero, stage: 1, stage3_prefetch_bucket_size: 5}"},
        "strategy.stage3_prefetch_bucket_size",
        "stage 1 has no such setting; only DeepSpeed's stage 3 has",
    ),
    (
        "zero bucket 0",
        {"strategy": "{kind: zero, reduce_bucket_size: 0}"},
        "strategy.reduce_bucket_size",
        "0 is not in 0 (excluded) … 1e+15",
    ),
    (
        "fsdp shard 0",
        {"strategy": "{kind: fsdp, shard: 0}"},
        "strategy.shard",
        "0 is not in 1 … 1,048,576",
    ),
    (
        "fsdp shard 3 of 2",
        {"cluster": "{ranks: 8}", "strategy": "{kind: fsdp, shard: 3}"},
        "strategy.shard",
        "8 ranks do not split into groups of 3; a divisor of 8 is",
    ),
    (
        "fsdp1 sharding",
        {"strategy": "{kind: fsdp1, sharding_strategy: HALF_SHARD}"},
        "strategy.sharding_strategy",
        "'HALF_SHARD' is none of FULL_SHARD, SHARD_GRAD_OP,",
    ),
    (
        "fsdp1 hybrid",
        {"strategy": "{kind: fsdp1, sharding_strategy: HYBRID_SHARD}"},
        "strategy.shard",
        "is missing; HYBRID_SHARD shards over so many consecutive",
    ),
    (
        "horovod version",
        {"strategy": "{kind: horovod, horovod: 0.28}"},
        "strategy.horovod",
        "0.28 is not a version",
    ),
    (
        "horovod adasum",
        {"strategy": "{kind: horovod, op: adasum}"},
        "strategy.op",
        "Adasum combines gradients pair by pair with dot products",
    ),
    (
        "horovod cycle -1",
        {"strategy": "{kind: horovod, cycle_time: -1}"},
        "strategy.cycle_time",
        "-1 is not in 0 … 1e+06",
    ),
    (
        "megatron gather",
        {"strategy": "{kind: megatron, overlap_param_gather: true}"},
        "strategy.overlap_param_gather",
        "needs use_distributed_optimizer: true",
    ),
    (
        "megatron bucket 0",
        {"strategy": "{kind: megatron, bucket_size: 0}"},
        "strategy.bucket_size",
        "0 is not in 1 … 1,000,000,000,000,000",
    ),
    (
        "lightning name",
        {"strategy": "{kind: lightning, strategy: dpp}"},
        "strategy.strategy",
        "'dpp' is none of ddp, ddp_find_unused_parameters_true,",
    ),
    (
        "lightning devices",
        {"strategy": "{kind: lightning, devices: 3}"},
        "strategy.devices",
        "3 processes are launched, and the cluster has 2 ranks",
    ),
    (
        "lightning option",
        {"strategy": "{kind: lightning, options: {bucket_cap: 3}}"},
        "strategy.options.bucket_cap",
        "unknown key; did you mean 'bucket_cap_mb'?",
    ),
    (
        "accelerate stage",
        {"strategy": "{kind: accelerate, zero_stage: 2}"},
        "strategy.zero_stage",
        "belongs to distributed_type: deepspeed",
    ),
    (
        "accelerate processes",
        {"strategy": "{kind: accelerate, num_processes: 3}"},
        "strategy.num_processes",
        "3 processes are launched, and the cluster has 2 ranks",
    ),
    (
        "ray workers",
        {"strategy": "{kind: ray_train, num_workers: 3}"},
        "strategy.num_workers",
        "3 processes are launched, and the cluster has 2 ranks",
    ),
    ("pmap key", {"strategy": "{kind: pmap, threshold: 3}"}, "strategy.threshold", "unknown key"),
    (
        "packs -1",
        {"strategy": "{kind: mirrored, num_packs: -1}"},
        "strategy.num_packs",
        "-1 is not in 0 … 10,000",
    ),
    (
        "tf ring",
        {"strategy": "{kind: multi_worker_mirrored, implementation: ring}"},
        "strategy.implementation",
        "TensorFlow's own ring over gRPC is not modelled; auto and",
    ),
    (
        "bucket list of old torch",
        {"strategy": "{kind: ddp, torch: '2.0', bucket_cap_mb_list: [1]}"},
        "strategy.bucket_cap_mb_list",
        "torch 2.0 is not known to have it; 2.13 has",
    ),
    (
        "hook",
        {"strategy": "{kind: ddp, comm_hook: fp8}"},
        "strategy.comm_hook",
        "'fp8' is none of none, fp16, bf16",
    ),
    (
        "all are backups",
        {"strategy": "{kind: ddp, backup_workers: 2}"},
        "strategy.backup_workers",
        "2 of 2 ranks leave nobody to wait for",
    ),
    (
        "data_parallel launch",
        {"strategy": "{kind: data_parallel, launch: 5}"},
        "strategy.launch",
        "5 has no unit",
    ),
    (
        "servers 0",
        {"collective": "{backend: parameter_server, servers: 0}"},
        "collective.servers",
        "0 is not in 1 … 100,000",
    ),
    (
        "largest server",
        {"collective": "{backend: parameter_server, largest: 0}"},
        "collective.largest",
        "0 is not in 0 (excluded) … 1",
    ),
    ("contention -1", {"compute": "{contention: -1}"}, "compute.contention", "-1 is not in 0 … 10"),
    ("spread 200 %", {"compute": "{spread: 2}"}, "compute.spread", "2 is not in 0 … 1"),
]
BOXES: list[Case] = [
    (
        "unknown machine",
        {"cluster": "{machine: dgx-h10, nodes: 1}"},
        "cluster.machine",
        "did you mean 'dgx-h100'?",
    ),
    ("no such machine", {"cluster": "{machine: abacus, nodes: 1}"}, "cluster.machine", "dgx-a100"),
    (
        "machine file gone",
        {"cluster": "{machine: ./my.yaml, nodes: 1}"},
        "cluster.machine",
        "no file './my.yaml'",
    ),
    (
        "machine outside",
        {"cluster": "{machine: ../my.yaml, nodes: 1}"},
        "cluster.machine",
        "outside the scenario's own folder",
    ),
    (
        "machine absolute",
        {"cluster": "{machine: /etc/passwd, nodes: 1}"},
        "cluster.machine",
        "outside the scenario's own folder",
    ),
    ("machine a number", {"cluster": "{machine: 3, nodes: 1}"}, "cluster.machine", "text"),
    (
        "device unknown",
        {"cluster": "{machine: dgx-h100, nodes: 1, device: h100-smx}"},
        "cluster.device",
        "did you mean 'h100-sxm'?",
    ),
    (
        "nodes and ranks",
        {"cluster": "{machine: dgx-h100, nodes: 1, ranks: 8}"},
        "cluster",
        "either nodes or ranks",
    ),
    ("neither", {"cluster": "{machine: dgx-h100}"}, "cluster", "either nodes or ranks"),
    ("nodes 0", {"cluster": "{machine: dgx-h100, nodes: 0}"}, "cluster.nodes", "0 is not in 1 …"),
    (
        "nodes 10^9",
        {"cluster": "{machine: dgx-h100, nodes: 1000000000}"},
        "cluster.nodes",
        "not in",
    ),
    (
        "nodes 2^20",
        {"cluster": "{machine: dgx-h100, nodes: 1048576}", "engine": "event"},
        "cluster",
        "8,388,608 ranks",
    ),
    (
        "ranks 2^20",
        {"cluster": "{machine: dgx-h100, ranks: 1048577}"},
        "cluster.ranks",
        "1,048,576",
    ),
    (
        "nine GPUs a node",
        {"cluster": "{machine: dgx-h100, nodes: 1, gpus_per_node: 9}"},
        "cluster.gpus_per_node",
        "9",
    ),
    ("no network", {"cluster": "{machine: two-rtx3090, nodes: 2}"}, "cluster.nodes", "single node"),
    (
        "rate without network",
        {"cluster": "{machine: two-rtx3090, nodes: 1, inter_node_bandwidth: 1 GB/s}"},
        "cluster.inter_node_bandwidth",
        "no network",
    ),
    (
        "rate unit-less",
        {"cluster": "{machine: dgx-h100, nodes: 2, inter_node_bandwidth: 50}"},
        "cluster.inter_node_bandwidth",
        "50 has no unit",
    ),
    (
        "oversubscription 0.5",
        {"cluster": "{machine: dgx-h100, nodes: 2, oversubscription: 0.5}"},
        "cluster.oversubscription",
        "0.5 is not in 1 …",
    ),
    (
        "oversubscribed star",
        {"cluster": "{machine: rack-10gbe, nodes: 2, oversubscription: 2}"},
        "cluster.oversubscription",
        "",
    ),
    (
        "bf16 on V100",
        {
            "cluster": "{machine: v100-1x100g, nodes: 1}",
            "precision": "{parameters: fp32, compute: bf16}",
        },
        "precision.compute",
        "bf16",
    ),
    (
        "algorithm",
        {"collective": "{backend: nccl, algorithm: rnig}"},
        "collective.algorithm",
        "'ring'",
    ),
    (
        "hierarchical on one node",
        {
            "cluster": "{machine: dgx-h100, nodes: 1}",
            "collective": "{backend: nccl, algorithm: hierarchical}",
        },
        "collective.algorithm",
        "hierarchical cannot do",
    ),
    (
        "layers without time on a machine",
        {"model": "{layers: [{name: a, parameters: 3}]}"},
        "model.layers[0]",
        "backward is missing",
    ),
    (
        "huggingface gone",
        {"model": "{huggingface: my.json, sequence_length: 8}"},
        "model.huggingface",
        "no file 'my.json'",
    ),
    (
        "huggingface absolute",
        {"model": "{huggingface: /etc/passwd, sequence_length: 8}"},
        "model.huggingface",
        "outside",
    ),
    (
        "huggingface up",
        {"model": "{huggingface: ../x.json, sequence_length: 8}"},
        "model.huggingface",
        "outside",
    ),
    (
        "sequence length missing",
        {"model": "{huggingface: gpt2-xl}"},
        "model.sequence_length",
        "is missing",
    ),
    (
        "sequence too long",
        {"model": "{huggingface: gpt2-xl, sequence_length: 4096}"},
        "model",
        "1,024 learned positions",
    ),
    (
        "sequence 0",
        {"model": "{huggingface: gpt2-xl, sequence_length: 0}"},
        "model.sequence_length",
        "0 is not in 1 …",
    ),
    ("calibrate above peak", {"calibrate": "{throughput: 9e7 images/s}"}, "calibrate", ""),
    (
        "calibrate above the peak",
        {"calibrate": "{step_time: 4 ms, ranks: 1}"},
        "calibrate",
        "of H100-SXM5",
    ),
    (
        "calibrate ranks huge",
        {"calibrate": "{step_time: 1 s, ranks: 1048577}"},
        "calibrate",
        "1,048,576",
    ),
]
MACHINE = """gpus_per_node: 2
device: h100-sxm
node:
  family: explicit
  vertices: [gpu0, gpu1, sw0]
  links:
    - {from: gpu0, to: sw0, bandwidth: 24 GB/s}
    - {from: gpu1, to: sw0, bandwidth: 24 GB/s}
"""
ONE = {"cluster": "{machine: box.yaml, nodes: 1}"}
# name, the machine's text, the key at fault, what the message says
MACHINES: list[tuple[str, str, str, str]] = [
    (
        "disconnected",
        MACHINE.replace("    - {from: gpu1, to: sw0, bandwidth: 24 GB/s}\n", ""),
        "node.vertices[1]",
        "gpu1 is not connected to gpu0",
    ),
    ("zero link", MACHINE.replace("24 GB/s", "0 GB/s", 1), "node.links[0].bandwidth", "0 GB/s is"),
    (
        "negative link",
        MACHINE.replace("24 GB/s", "-1 GB/s", 1),
        "node.links[0].bandwidth",
        "-1 GB/s",
    ),
    ("unit-less link", MACHINE.replace("24 GB/s", "24", 1), "node.links[0].bandwidth", "no unit"),
    ("unknown vertex", MACHINE.replace("gpu1, to", "gpu7, to"), "node.links[1].from", "'gpu7'"),
    ("self-loop", MACHINE.replace("gpu0, to: sw0", "sw0, to: sw0"), "node.links[0]", "with itself"),
    ("odd name", MACHINE.replace("sw0]", "sw0, hub]"), "node.vertices[3]", "'hub' is not a name"),
    ("twice", MACHINE.replace("sw0]", "sw0, sw0]"), "node.vertices", "sw0 is named twice"),
    ("gap", MACHINE.replace("gpu1", "gpu2"), "node.vertices", "gpu1 is missing"),
    ("no GPU", MACHINE.replace("gpu", "nic").replace("nics_per", "gpus_per"), "", "GPU"),
    ("0 GPUs", MACHINE.replace("node: 2", "node: 0"), "gpus_per_node", "0 is not in 1 …"),
    ("3 GPUs", MACHINE.replace("node: 2", "node: 3"), "cluster.gpus_per_node", "3 gpus wanted"),
    ("no device", MACHINE.replace("h100-sxm", "h100"), "device", "no device 'h100'"),
    ("no family", MACHINE.replace("family: explicit", "famly: explicit"), "node.family", "missing"),
    ("family", MACHINE.replace("explicit", "explict"), "node.family", "did you mean 'explicit'?"),
    ("network as node", MACHINE.replace("explicit", "star"), "node", ""),
    ("misspelt key", MACHINE.replace("gpus_per_node", "gpu_per_node"), "gpu_per_node", "unknown"),
    ("list", "[1, 2]\n", "", "a mapping is needed"),
    ("empty", "", "", "is empty"),
]


def text(base: dict[str, str], changes: dict[str, str]) -> str:
    return "".join(f"{key}: {value}\n" for key, value in (base | changes).items())


def line_of(base: dict[str, str], changes: dict[str, str], where: str) -> int:
    return 1 + list(base | changes).index(re.split(r"[.\[]", where)[0])


Refusal = Callable[..., str]


@pytest.fixture
def refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Refusal:
    """Runs `dpsim run FILE -o out` in an empty folder; returns the one line it refuses with."""
    monkeypatch.chdir(tmp_path)

    def run(file: str = "x.yaml", *more: str, code: int = 2) -> str:
        monkeypatch.setattr(sys, "argv", ["dpsim", "run", file, "-o", "out", *more])
        returned = _run()
        out, err = capsys.readouterr()
        assert (returned, out) == (code, "")
        assert not Path("out").exists()
        return check(err)

    return run


def check(err: str) -> str:
    """The one sentence of `err`, free of what only programmers read."""
    assert err.endswith("\n")
    lines = err.splitlines()
    assert len(lines) == 1, err
    assert lines[0].startswith("dpsim: ")
    assert not any(word in err for word in JARGON), err
    return lines[0].removeprefix("dpsim: ")


def ids(case: tuple[object, ...]) -> str:
    return str(case[0])


@pytest.mark.parametrize(
    ("base", "case"),
    [(TOY, case) for case in VALUES + MORE] + [(BOX, case) for case in BOXES],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_value_is_refused(base: dict[str, str], case: Case, refusal: Refusal) -> None:
    _, changes, where, says = case
    Path("x.yaml").write_text(text(base, changes), encoding="utf-8")
    message = refusal()
    line = f":{line_of(base, changes, where)}: {where}" if where else ""
    assert message.startswith(f"x.yaml{line}"), message
    assert says in message


@pytest.mark.parametrize("case", MACHINES, ids=ids)
def test_machine_is_refused(case: tuple[str, str, str, str], refusal: Refusal) -> None:
    _, machine, where, says = case
    Path("x.yaml").write_text(text(BOX, ONE), encoding="utf-8")
    Path("box.yaml").write_text(machine, encoding="utf-8")
    message = refusal()
    assert re.match(r"(x|box)\.yaml(:\d+)?: ", message), message
    assert where in message
    assert says in message


GOOD = text(TOY, {})
BOMB = "a: &a [x, x]\n" + "".join(f"b{n}: &b{n} [*a, *a]\n" for n in range(30))
# name, the file's bytes, what the message says
FILES: list[tuple[str, bytes, str]] = [
    ("empty", b"", "x.yaml: is empty"),
    ("comments only", b"# nothing\n# here\n", "is empty"),
    ("top-level list", b"- 1\n- 2\n", "holds no mapping"),
    ("top-level scalar", b"dpsim\n", "holds no mapping"),
    ("top-level null", b"null\n", "holds no mapping"),
    ("empty mapping", b"{}\n", "is missing"),
    ("alias bomb", BOMB.encode(), "x.yaml:1: a: anchors (&) are not accepted"),
    ("alias", b"a: *b\n", "x.yaml:1: a: aliases (*) are not accepted"),
    ("self-reference", b"a: &a [*a]\n", "anchors"),
    ("merge key", b"model:\n  <<: {name: vgg16}\n", "x.yaml:2: model: merge keys"),
    ("python tag", b"a: !!python/object/apply:os.system ['id']\n", "tags (!) are not accepted"),
    ("own tag", b"a: !include /etc/passwd\n", "tags (!) are not accepted"),
    ("directive", b"%YAML 1.1\n---\na: 1\n", "directives"),
    ("two documents", GOOD.encode() + b"---\n" + GOOD.encode(), "second document"),
    ("nested 10,000 deep", b"[" * 10_000, "x.yaml:1: "),
    ("braces 10,000 deep", b"{a: " * 10_000 + b"}" * 10_000, "more than 32 levels"),
    ("binary", bytes(range(256)), "x.yaml:"),
    ("UTF-16", GOOD.encode("utf-16"), "is not UTF-8 text"),
    ("UTF-32", GOOD.encode("utf-32"), "x.yaml:1: "),
    ("Latin-1", b"title: caf\xe9\n", "x.yaml:1: is not UTF-8 text"),
    ("NUL", b"title: a\0b\n", "x.yaml:1: holds the control character U+0000"),
    ("escape", b"title: \x1b[31m\n", "U+001B"),
    ("BOM and garbage", b"\xef\xbb\xbf\xff\xfe", "is not UTF-8 text"),
    ("BOM twice", b"\xef\xbb\xbf\xef\xbb\xbfa: 1\n", "x.yaml:1: "),
    ("tab", b"a:\n\tb: 1\n", "tabs do not indent"),
    ("duplicate key", b"title: a\ntitle: b\n", "x.yaml:2: title: is given twice; first on line 1"),
    ("list as key", b"? [1]\n: 2\n", "cannot be a key"),
    ("true as key", b"true: 2\n", "not text"),
    ("unclosed", b"model: {name: vgg16\n", "not valid YAML"),
    ("unclosed quote", b'title: "a\n', "not valid YAML"),
    ("10 MB and one byte", b"#" + b"x" * 10_000_000, "x.yaml: is larger than 10 MB"),
    ("9.9 MB of nonsense", b"- [a, {b: c}]\n" * 707_000, "more than 200,000 values"),
    ("9.9 MB of one word", b"x" * 9_900_000, "holds no mapping"),
    ("9.9 MB of blanks", b"title: " + b" \n" * 4_950_000, "where text is needed"),
    ("JSON cut", b'{"model": {"name": "vgg16"', "not valid YAML"),
    ("NUL in a name", GOOD.encode() + b'measured: "a\\0b"\n', "measured: "),
    ("4 kB name", GOOD.encode() + b"measured: " + b"x" * 4096 + b"\n", "measured: "),
    ("newline in a key", GOOD.encode() + b'"a\\nb": 1\n', "unknown key"),
]


@pytest.mark.parametrize("case", FILES, ids=ids)
def test_file_is_refused(case: tuple[str, bytes, str], refusal: Refusal) -> None:
    _, raw, says = case
    Path("x.yaml").write_bytes(raw)
    message = refusal()
    assert message.startswith("x.yaml:")
    assert says in message


def test_things_that_are_no_files_are_refused(refusal: Refusal) -> None:
    Path("folder.yaml").mkdir()
    os.mkfifo("fifo.yaml")
    Path("loop.yaml").symlink_to("loop.yaml")
    assert refusal("no.yaml") == "no.yaml: there is no such file"
    assert refusal("folder.yaml") == "folder.yaml: is a folder; a file is needed"
    assert refusal("fifo.yaml") == "fifo.yaml: is a pipe that holds nothing"
    assert refusal("/dev/zero") == "/dev/zero: is a device or socket; a file or a pipe is needed"
    assert refusal("loop.yaml").startswith("loop.yaml: cannot be read: ")
    assert refusal("../no.yaml") == "../no.yaml: there is no such file"
    assert refusal("quickstar").startswith("no scenario file 'quickstar', and no such bundled")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_files_are_refused(refusal: Refusal) -> None:
    Path("x.yaml").write_text(GOOD)
    Path("x.yaml").chmod(0)
    assert refusal() == "x.yaml: cannot be read: permission denied"


# name, content of c.json, what the message says
CONFIGS = [
    ("no JSON", "{", "is JSON that was cut short"),
    ("a list", "[]", "holds no JSON object"),
    ("deep", "[" * 100_000, "is nested too deeply"),
    ("no family", "{}", "model_type"),
    ("other family", '{"model_type": "mamba"}', "mamba"),
    ("no sizes", '{"model_type": "llama"}', "c.json"),
    ("size 0", '{"model_type": "gpt2", "n_embd": 0, "n_layer": 1, "n_head": 1}', "n_embd"),
    ("size NaN", '{"model_type": "gpt2", "n_embd": NaN, "n_layer": 1, "n_head": 1}', "holds NaN"),
    ("a key twice", '{"model_type": "gpt2", "model_type": "llama"}', "the key 'model_type' twice"),
]


@pytest.mark.parametrize("case", CONFIGS, ids=ids)
def test_configs_are_refused(case: tuple[str, str, str], refusal: Refusal) -> None:
    model = {"model": "{huggingface: c.json, sequence_length: 8}"}
    Path("x.yaml").write_text(text(BOX, model), encoding="utf-8")
    Path("c.json").write_text(case[1], encoding="utf-8")
    message = refusal()
    assert message.startswith("x.yaml:1: model.huggingface: c.json")
    assert case[2] in message


# name, content of m.csv, what the message says
TABLES = [
    ("empty", "", "is empty"),
    ("header only", "ranks,step_time_s\n", "no measured point"),
    ("no number", "ranks,step_time_s\n2,fast\n", "m.csv:2: step_time_s: 'fast' is not a number"),
    ("0 s", "ranks,step_time_s\n2,0\n", "0 s is not in 1e-09"),
    ("nan", "ranks,step_time_s\n2,nan\n", "not a number"),
    ("half a rank", "ranks,step_time_s\n2.5,1\n", "not a whole number"),
    ("no ranks", "nodes,step_time_s\n2,1\n", "ranks"),
    ("no unit", "ranks,throughput\n2,100\n", "unit"),
    ("other unit", "ranks,throughput,unit\n2,100,cats/s\n", "'cats' is none of"),
    ("huge cell", "ranks,step_time_s\n2," + "9" * 200_000 + "\n", "m.csv"),
    ("binary", "\0\0\0,\0\n\0,\0\n", "m.csv"),
]


@pytest.mark.parametrize("key", ["measured", "calibrate"])
@pytest.mark.parametrize("case", TABLES, ids=ids)
def test_tables_are_refused(case: tuple[str, str, str], key: str, refusal: Refusal) -> None:
    value = "m.csv" if key == "measured" else "{file: m.csv}"
    Path("x.yaml").write_text(text(TOY, {key: value}), encoding="utf-8")
    Path("m.csv").write_text(case[1], encoding="utf-8")
    message = refusal()
    assert message.startswith("x.yaml:6: ")
    assert case[2] in message


def test_links_out_of_the_folder_are_refused(refusal: Refusal, tmp_path: Path) -> None:
    secret = tmp_path.parent / f"{tmp_path.name}.csv"
    secret.write_text("ranks,step_time_s\n2,1\n")
    Path("m.csv").symlink_to(secret)
    Path("x.yaml").write_text(text(TOY, {"measured": "m.csv"}))
    outside = "lies outside the scenario's own folder"
    assert refusal() == f"x.yaml:6: measured: 'm.csv' {outside}"
    Path("box.yaml").symlink_to(secret)
    Path("x.yaml").write_text(text(BOX, ONE))
    assert refusal() == f"x.yaml:2: cluster.machine: 'box.yaml' {outside}"


# --set texts on the toy, what the message says
COMMANDS = [
    ("cluster.ranks", "--set cluster.ranks: write it as key.path=value"),
    ("=3", "--set =3: write it as key.path=value"),
    ("", "write it as key.path=value"),
    ("cluster.ranks=0", "--set cluster.ranks=0: cluster.ranks: 0 is not in 1 … 1,048,576"),
    ("cluster.rank=3", "did you mean 'ranks'?"),
    ("clutser.ranks=3", "did you mean 'cluster'?"),
    ("strategy.recompute=full", "; there is 'recompute'"),
    ("cluster.per_device=4", "did you mean 'device'? there is 'batch.per_device'"),
    ("parallel.context_=2", "did you mean 'context'?"),
    ("collective.latency=3", "3 has no unit; write for example '5 us', '400 ms' or '30 d'"),
    ("precision=bf16", "'bf16' where a mapping is needed; write {compute: bf16}; its keys: "),
    ("precision=soon", "'soon' where a mapping is needed; write for example {compute: bf16}; "),
    ("price=2.5", "2.5 where a mapping is needed; write for example {per_device_hour: 2.10 usd}; "),
    ("price=2.5 usd", "write {per_device_hour: 2.5 usd}; its keys: "),
    ("batch=null", "nothing where a mapping is needed; write for example {per_device: 8}; "),
    ("cost=3", "cost: unknown key; did you mean 'price'?"),
    ("cluster.fabric=roce", "cluster.fabric: unknown key; did you mean 'inter_node_kind'?"),
    ("recompute=null", "recompute: is empty (null); one of none, selective, selective_op, "),
    ("recompute=null", " is needed; left out it is 'none'"),
    ("calibrate={throughput: 5000, ranks: 8}", "'5000': images/s (or samples/s, sequences/s, "),
    ("collective.bandwidth=3 GB", "where B/s is needed"),
    ("model.layers[9].forward=1 ms", "no such key"),
    ("cluster.ranks.x=3", "no such key"),
    ("batch.global=1", "without a sample"),
    ("cluster.ranks=[", "not valid YAML"),
    ("cluster=!!python/none x", "tags"),
    (".".join("a" * 40) + "=1", "no path to a key"),
]


@pytest.mark.parametrize("case", COMMANDS, ids=ids)
def test_set_is_refused(case: tuple[str, str], refusal: Refusal) -> None:
    Path("x.yaml").write_text(GOOD)
    message = refusal("x.yaml", "--set", case[0])
    assert message.startswith(f"--set {case[0]}")
    assert case[1] in message


def test_a_key_that_lacks_its_plural_is_not_looked_for_elsewhere(refusal: Refusal) -> None:
    """`failures.node` is another thing."""
    Path("x.yaml").write_text(GOOD)
    message = refusal("x.yaml", "--set", "cluster.node=3")
    assert message.endswith("cluster.node: unknown key; did you mean 'nodes'?")


WORDS: list[tuple[dict[str, str], dict[str, str], str]] = [
    (
        BOX,
        {"cluster": "{machine: dgx-h100, nodes: 0}"},
        "2: cluster.nodes: 0 is not in 1 … 1,048,576",
    ),
    (
        TOY,
        {"collective": IDEAL.format("1")},
        "3: collective.latency: 1 has no unit; write for example '5 us', '400 ms' or '30 d'",
    ),
    (
        TOY,
        {"collective": RATE.format("10 Gbps")},
        "3: collective.bandwidth: '10 Gbps': write 'Gbit/s', not 'Gbps'",
    ),
    (
        TOY,
        {"strategy": "{kind: dpp}"},
        "4: strategy.kind: no 'dpp' in strategies; did you mean 'ddp'? "
        f"there are {', '.join(names('strategies'))}",
    ),
    (TOY, {"batch": "{globl: 8}"}, "6: batch.globl: unknown key; did you mean 'global'?"),
    (
        TOY,
        {"cluster": "[2]"},
        "2: cluster: [2] where a mapping is needed; write for example {machine: dgx-h100, "
        "nodes: 4}; its keys: " + ", ".join(sorted(f.name for f in dataclasses.fields(Cluster))),
    ),
    (
        TOY,
        {"precision": "{parameters: fp23, compute: fp32}"},
        "6: precision.parameters: 'fp23' is none of fp64, fp32, bf16, fp16; did you mean 'fp32'?",
    ),
    (
        TOY,
        {"sweep": "{cluster.ranks: [1, 0]}"},
        "6: sweep.cluster.ranks: 0 is not in 1 … 1,048,576",
    ),
    (
        TOY,
        {"batch": "{global: 1}"},
        "6: batch.global: global 1 leaves some of 2 ranks without a sample",
    ),
    (
        BOX,
        {"cluster": "{machine: dgx-h10, nodes: 1}"},
        "2: cluster.machine: no machine 'dgx-h10'; did you mean 'dgx-h100'?",
    ),
    (
        TOY,
        {"collective": "{backend: nccl}"},
        "3: collective: this backend needs a machine; without one choose astra_sim, free, ideal, "
        "ideal_ring, parameter_server or simgrid",
    ),
    (
        BOX,
        {"cluster": "{machine: dgx-h100, nodes: 1048576}"},
        "2: cluster: 8,388,608 ranks; at most 1,048,576 (131,072 nodes of 8) are accepted",
    ),
]


@pytest.mark.parametrize("case", WORDS, ids=lambda case: case[2][:30])
def test_words(case: tuple[dict[str, str], dict[str, str], str], refusal: Refusal) -> None:
    """A dozen messages, word for word."""
    base, changes, message = case
    Path("x.yaml").write_text(text(base, changes), encoding="utf-8")
    assert refusal() == f"x.yaml:{message}"


SUBPROCESS: dict[str, str | bytes] = {
    "unit": text(TOY, {"collective": IDEAL.format("1")}),
    "zero": text(TOY, {"collective": RATE.format("0 GB/s")}),
    "huge": text(TOY, {"cluster": f"{{ranks: 1{'0' * 400}}}"}),
    "misspelt": text(TOY, {"colective": "{}"}),
    "million nodes": text(
        BOX, {"cluster": "{machine: dgx-h100, nodes: 1048576}", "engine": "event"}
    ),
    "events": text(TOY, {"cluster": "{ranks: 1048576}", "engine": "event",
                         "variability": "{jitter: 2 %, steps: 10000}"}),
    "points": text(TOY, {"sweep": f"{{cluster.ranks: [{GRID}], seed: [{GRID}]}}"}),
    "calibrate": text(TOY, {"calibrate": "{step_time: 1 us}"}),
    "jobs": text(TOY, {"jobs": "[]"}),
    "machine": text(BOX, {"cluster": "{machine: dgx-h10, nodes: 1}"}),
    "bomb": BOMB,
    "deep": b"[" * 10_000,
    "binary": bytes(range(256)),
    "nonsense": b"- [a, {b: c}]\n" * 707_000,
    "large": b"#" + b"x" * 10_000_000,
}  # fmt: skip


@pytest.fixture(scope="module")
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where processes keep what they compiled: nothing is installed for -O."""
    return str(tmp_path_factory.mktemp("bytecode"))


@pytest.mark.parametrize("name", SUBPROCESS)
def test_process_refuses(name: str, tmp_path: Path, bytecode: str) -> None:
    """A real process, without assertions (-O): code 2, one line, no files, and it ends."""
    raw = SUBPROCESS[name]
    (tmp_path / "x.yaml").write_bytes(raw.encode() if isinstance(raw, str) else raw)
    source = str(Path(__file__).resolve().parent.parent)
    done = subprocess.run(
        [sys.executable, "-O", "-m", "dpsim", "run", "x.yaml", "--json", "-o", "out"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        env=os.environ | {"PYTHONPATH": source, "PYTHONPYCACHEPREFIX": bytecode,
                          "PYTHONDONTWRITEBYTECODE": ""},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert check(done.stderr).startswith("x.yaml")
    assert [path.name for path in tmp_path.iterdir()] == ["x.yaml"]
