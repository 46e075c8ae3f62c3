"""A service made of its description: what room its ranks have, and what it does when asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from dpsim.core.lean import dataclass
from dpsim.core.record import Refused
from dpsim.machines.devices import Device
from dpsim.machines.machine import Machine, gbits, load_machine, node_in_words
from dpsim.serving.decoder import Decoder, decoder_of
from dpsim.serving.described import LoadedService, Requests, ServingEngine
from dpsim.serving.exchanges import StepExchanges
from dpsim.serving.fleet import Fleet, nobody
from dpsim.serving.pace import StepPace, StretchedPace
from dpsim.serving.scheduler import BLOCK, Scheduler, blocks_of
from dpsim.serving.workload import Ask, asked, fewer

#: context, libraries and NCCL's buffers [B] (docs/assumptions.md, A24: 0.5 to 2 GB)
RUNTIME = 1e9
#: tokens that all requests may come to, so that a play ends within minutes
MOST_TOKENS = 20_000_000


class RankRoom(NamedTuple):
    """Of a rank: blocks of its KV cache, and bytes of a device for weights, for the cache, and for
    all else."""

    blocks: int
    weights: float
    cache: float
    beside: float


@dataclass(frozen=True)
class Offered:
    """A service of so many replicas, ready to be asked.

    most, budget  sequences and tokens of a rank's step
    nodes         the replicas of each node
    longest       tokens that a request may have, where that is known
    answered      is called for every request that is answered
    """

    engine: ServingEngine
    machine: Machine
    decoder: Decoder
    pace: StepPace | StretchedPace
    room: RankRoom
    most: int
    budget: int
    nodes: tuple[tuple[int, ...], ...]
    longest: int | None
    answered: Callable[[], None] = nobody

    def fleet(self, asks: tuple[Ask, ...], concurrency: int | None) -> Fleet:
        """The service with what it is asked; not yet played."""
        self._check(asks)
        ranks = [
            Scheduler(self.room.blocks, self.most, self.budget) for _ in range(self.engine.replicas)
        ]
        found = Fleet(self.engine, self.pace, asks, concurrency, ranks, self.nodes)
        found.answered = self.answered
        return found

    def _check(self, asks: tuple[Ask, ...]) -> None:
        longest = max(one.prompt + one.answer for one in asks)
        if self.longest and longest > self.longest:
            raise Refused(
                f"a request of {longest:,} tokens is beyond max_model_len, which is "
                f"{self.longest:,}; shorter ones are accepted",
                ("requests", _longer(asks, longest)),
            )
        if blocks_of(longest) > self.room.blocks:
            raise Refused(
                f"a request of {longest:,} tokens does not fit into a rank's KV cache of "
                f"{self.room.blocks * BLOCK:,}; shorter ones, or a larger tensor, are accepted",
                ("requests", _longer(asks, longest)),
            )
        tokens = sum(one.answer for one in asks)
        if tokens > MOST_TOKENS:
            raise Refused(
                f"{tokens:,} tokens of answers; at most {MOST_TOKENS:,} are played, so ask less",
                ("requests", "count"),
            )


def _longer(asks: tuple[Ask, ...], longest: int) -> str:
    """The key that makes requests of `longest` tokens as long as they are."""
    one = next(one for one in asks if one.prompt + one.answer == longest)
    return "input" if one.prompt >= one.answer else "output"


def offered(loaded: LoadedService, replicas: int | None = None) -> Offered:
    """The service that `loaded` describes, of another number of `replicas` where one is given.

    Raises Refused where the machine, the model or their sizes are not modelled or do not fit.
    """
    service = loaded.service
    engine = service.serving if replicas is None else replace(service.serving, replicas=replicas)
    machine = load_machine(service.cluster.machine, loaded.base)
    device = machine.device
    decoder = decoder_of(service.model.huggingface, engine, loaded.base)
    exchanges = StepExchanges(machine, engine.replicas, engine.tensor)
    most, budget = limits(engine, device)
    room = room_of(engine, decoder, device, exchanges.ranks, most, budget)
    longest = length(engine, decoder, room)
    pace = StepPace(decoder, device, exchanges)
    nodes = exchanges.filled
    return Offered(engine, machine, decoder, pace, room, most, budget, nodes, longest)


def machine_in_words(loaded: LoadedService) -> str:
    """Devices of a node, whose node it is, and what joins it to others."""
    machine = load_machine(loaded.service.cluster.machine, loaded.base)
    node = machine.gpus_per_node, machine.device.name, machine.name
    link = getattr(machine.network, "link", None)
    if link is None:
        return node_in_words(*node)
    return node_in_words(*node, machine.nics_per_node, gbits(link), link.kind)


def length(engine: ServingEngine, decoder: Decoder, room: RankRoom) -> int | None:
    """Tokens that a request may have, where that is known; Refused where vLLM would not start."""
    known, where = decoder.positions, ("serving", "max_model_len")
    longest = engine.max_model_len or known
    if longest and known and longest > known:
        raise Refused(f"{longest:,} tokens are beyond the model's {known:,} positions", where)
    if longest and longest > room.blocks * BLOCK:
        what = "" if engine.max_model_len else " (the model's positions)"
        raise Refused(
            f"a rank's KV cache holds {room.blocks * BLOCK:,} tokens, fewer than one request of "
            f"{longest:,}{what} may have, and vLLM does not start; max_model_len up to "
            f"{room.blocks * BLOCK:,}, or more GPUs a replica, are accepted",
            where,
        )
    return longest


def limits(engine: ServingEngine, device: Device) -> tuple[int, int]:
    """Sequences and tokens of a rank's step: what is said, else vLLM's defaults for its server
    (`vllm/engine/arg_utils.py`, get_batch_defaults)."""
    large = device.room[1] >= 70 * 2**30 and "A100" not in device.name
    budget = engine.max_num_batched_tokens or (8192 if large else 2048)
    most = engine.max_num_seqs or min(1024 if large else 256, budget)
    if budget < most:
        raise Refused(
            f"steps of {budget:,} tokens cannot hold {most:,} sequences; as many as "
            "max_num_seqs, or more, are accepted",
            ("serving", "max_num_batched_tokens"),
        )
    return most, budget


def room_of(
    engine: ServingEngine, decoder: Decoder, device: Device, ranks: int, most: int, budget: int
) -> RankRoom:
    """What a device's memory holds; Refused where nothing is left for keys and values.

    Beside weights and cache there are activations of the largest step (the widest part of a block
    and three vectors between blocks a token, and logits in 32 bits twice) and `RUNTIME`.
    """
    weights = decoder.weights(ranks)
    beside = RUNTIME + 2.0 * budget * (decoder.widest + 3 * decoder.hidden)
    beside += 8.0 * most * decoder.vocabulary / engine.tensor
    room = device.room[1]  # what CUDA calls the total, of which vLLM takes its share
    left = room * engine.gpu_memory_utilization - weights - beside
    blocks = engine.kv_blocks or int(max(left, 0.0) // (BLOCK * decoder.keys))
    if blocks < 1:
        raise Refused(
            f"weights of {weights / 1e9:,.1f} GB and {beside / 1e9:,.1f} GB beside them leave no "
            f"room for keys and values in {engine.gpu_memory_utilization:.0%} of "
            f"{room / 1e9:,.1f} GB; more GPUs a replica, or weights in fewer bits, are "
            "accepted",
            ("serving",),
        )
    if weights + blocks * BLOCK * decoder.keys > room:
        raise Refused(
            f"weights of {weights / 1e9:,.1f} GB and keys and values of "
            f"{blocks * BLOCK * decoder.keys / 1e9:,.1f} GB do not fit into "
            f"{room / 1e9:,.1f} GB; fewer blocks, or more GPUs a replica, are accepted",
            ("serving", "kv_blocks"),
        )
    return RankRoom(blocks, weights, blocks * BLOCK * decoder.keys, beside)


def played(offer: Offered, requests: Requests, seed: int, base: Path, share: float = 1.0) -> Fleet:
    """The service after it has answered a `share` of what is asked (`dpsim.serving.workload`)."""
    asks = asked(requests, seed, base, share)
    found = offer.fleet(asks, fewer(requests, share).concurrency)
    found.play()
    return found
