"""Keys that a scenario sets and that change nothing where it sets them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dpsim.cases.case import Case
from dpsim.compile.loaders import Loader
from dpsim.compile.strategies.megatron import Megatron
from dpsim.core import plugins
from dpsim.core.dtypes import OPERANDS, rest_of
from dpsim.models.few_bits import is_cast
from dpsim.models.memory import kept_bytes
from dpsim.models.recomputing import EARLY, stops_early


def unused(case: Case) -> Iterator[str]:
    """A warning for each key of `case` that changes nothing there."""
    scenario, layers = case.scenario, case.model.layers
    precision = case.precision
    yield from _own_dtype(case)
    yield from _wide(case)
    dtype, asked = precision.compute, scenario.recompute
    kept = any(kept_bytes(one, dtype, asked) < kept_bytes(one, dtype, "none") for one in layers)
    if asked != "none" and not kept:
        yield f"recompute: {asked} changes nothing: no layer of the model then keeps less"
    elif asked == EARLY and not any(stops_early(one, asked) for one in layers):
        yield (
            f"recompute: {EARLY} is full here: no block ends with a product that backward does "
            "without (A62)"
        )
    if scenario.context is not None and scenario.parallel.context == 1:
        yield "context changes nothing: no ranks split sequences (parallel.context is 1)"
    if scenario.parallel.blocking_sends and scenario.parallel.pipeline == 1:
        yield "parallel.blocking_sends changes nothing: no stages send (parallel.pipeline is 1)"
    yield from (f"strategy.{text}" for text in scenario.strategy.idle(case.model))
    yield from _stays(case)
    yield from _images(case)
    given = all(one.forward is not None for one in layers)
    if dtype in OPERANDS and not given and not any(is_cast(one, dtype) for one in layers):
        yield f"precision.compute: {dtype} is {rest_of(dtype)} here: no layer's products run in it"
    if scenario.execution.cuda_graphs and scenario.host.launch is None and given:
        yield (
            "execution.cuda_graphs changes nothing of the layers: their durations are given, and "
            "the host's launches are not played (host.launch)"
        )
    if scenario.compute.efficiency is not None and given:
        yield "compute.efficiency changes nothing: the durations of layers are given"
    if scenario.execution.cuda_graphs and scenario.host.launch is None and not _quicker(case):
        yield (
            "execution.cuda_graphs changes nothing: no layer and no update is held up by launches "
            "(host.launch plays them one by one)"
        )


def _images(case: Case) -> Iterator[str]:
    """That the kernels of an image network stay what they are."""
    execution = case.scenario.execution
    lists = [
        (one.eager_kernels, one.compiled_kernels) for one in case.model.layers if one.convolves
    ]
    if execution.compile and lists and all(one == other for one, other in lists):
        yield "execution.compile changes nothing: no batch normalisation to fuse anything to"
    if execution.channels_last is not None and not case.work.lies:
        yield (
            "execution.channels_last changes nothing: convolutions want channels last on NVIDIA's "
            "tensor cores alone, in 16 bits or tf32"
        )


def _own_dtype(case: Case) -> Iterator[str]:
    """That a strategy sends gradients in a dtype of its own, and what says another."""
    strategy, precision = case.scenario.strategy, case.precision
    name, wide, hint = plugins.name_of(strategy), False, ""
    if isinstance(strategy, Megatron):
        wide = strategy.gradient_dtype(precision.parameters) == "fp32"
        hint = "; strategy.grad_reduce_in_fp32: true makes it fp32"
    asked = precision.reduce not in (None, precision.parameters) and not strategy.casts_gradients
    if not asked or (wide and precision.reduce == "fp32"):
        return
    hint = hint if precision.reduce == "fp32" else ""
    own = "fp32" if wide else "their own dtype"
    yield f"precision.reduce changes nothing: {name} sends gradients in {own}{hint}"


def _wide(case: Case) -> Iterator[str]:
    """That blocks which should stay in 16 bits would have no fewer, or are given durations."""
    precision = case.precision
    why = ""
    if precision.compute not in OPERANDS:
        why = f"precision.compute is none of {', '.join(OPERANDS)}"
    elif all(layer.forward is not None for layer in case.model.layers):
        why = "the durations of layers are given"
    for key in ("wide_first", "wide_last"):
        if why and getattr(precision, key):
            yield f"precision.{key} changes nothing: {why}"


def _stays(case: Case) -> Iterator[str]:
    """That workers of a loader need not stay from epoch to epoch."""
    given = case.scenario.input
    if not isinstance(given, Loader) or not getattr(given, "persistent", False):
        return
    if given.samples is None:
        yield "input.persistent changes nothing: epochs do not end (input.samples)"
    elif not given.start:
        yield "input.persistent changes nothing: workers start in no time (input.start)"


def _quicker(case: Case) -> bool:
    """Whether captured graphs make any layer or the update quicker."""
    scenario, samples = case.scenario, max(case.shares)
    plain = replace(scenario, execution=replace(scenario.execution, cuda_graphs=False))
    jobs = (one.job(samples) for one in (case, replace(case, scenario=plain)))
    one, other = ((job.times, job.least_update) for job in jobs)
    return one != other
