"""What an answer of a service takes for granted."""

from __future__ import annotations

from collections.abc import Iterable

from dpsim.serving.decoder import decoder_of
from dpsim.serving.described import LoadedService


def assumptions(loaded: LoadedService) -> Iterable[str]:
    """What is taken for granted, in sentences."""
    service, engine = loaded.service, loaded.service.serving
    yield "Steps are worked out from kernels and collectives, not measured on this machine"
    experts = decoder_of(service.model.huggingface, engine, loaded.base).experts
    if not experts:
        yield (
            "Intervals are as wide as models with experts were found to need; of others few runs "
            "are known"
        )
    yield (
        f"A token takes an API server {engine.output_token * 1e6:g} us; one report's figure, "
        "unless serving.output_token says another"
    )
    if service.requests.rate is not None or service.requests.lengths != "fixed":
        yield f"Arrivals and lengths are one draw, seed {service.seed}: quantiles move with it"
    if engine.weights == "nvfp4":
        yield "Products in 4 bits compute at the rate of 8, and attention's weights stay in 16"
    if service.requests.concurrency is not None:
        yield "All first requests come at once, so the first tokens of these wait for one another"
    if experts:
        yield "Experts are chosen evenly"
    yield "Prompts share no beginnings, and no request is cut off"
