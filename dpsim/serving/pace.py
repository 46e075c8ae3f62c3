"""What a step of the engine takes: kernels one after the other, collectives, and the host beside.

* A product reads its matrix or computes, whichever takes longer: weights / (0.9 x memory
  bandwidth), 2 rows x columns x tokens / (peak x what products reach).  Shares are those of
  training's products (`dpsim.models.execution`).
* Attention of prompts runs at flash attention's share of the peak; tokens that follow read the keys
  and values of all before them at 0.8 of the memory bandwidth, or compute where that takes longer
  (latent attention).
* Experts of a device multiply the tokens of all ranks that chose them, padded by half a tile; only
  those that were chosen are read: 1 - (1 - k/E)^tokens of them, for a router that is balanced.
* All else moves its elements at 0.8 of the memory bandwidth.  No kernel is shorter than its launch
  in a captured graph.
* A tensor group all-reduces after attention and after the feed-forward part. With experts and
  several replicas all ranks gather all tokens before experts and reduce-scatter behind them
  (`allgather_reducescatter`, vLLM 0.19's default), filled up to the replica with most; a tensor
  group then gathers its own. It gathers the parts of the logits that are wanted, in 16 bits (vLLM
  `model_executor/layers/logits_processor.py`, `_gather_logits`). vLLM fills up captured graphs, of
  512 tokens at most, only; but where all steps are filled up, measured first tokens are nearer (20
  runs in 8 bits, and LLMServingSim's two ranks).
* The host prepares the next step while the device computes (asynchronous scheduling, vLLM 0.19), so
  a step takes the longer of the two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpsim.core.record import Refused
from dpsim.machines.devices import Device
from dpsim.models.compute import DEFAULT_EFFICIENCY, STREAMED, TOGETHER
from dpsim.models.few_bits import PRODUCTS_SHARE
from dpsim.models.rates import ATTENTION, GRAPH_LAUNCH, NARROW, PRODUCTS, WIDE, reached
from dpsim.serving.decoder import Decoder, HeldExperts, HeldMatrix
from dpsim.serving.exchanges import StepExchanges
from dpsim.serving.scheduler import StepWork

#: tiles of rows that grouped products compute: the smallest and the largest of vLLM's fused kernel
#: (`vllm/model_executor/layers/fused_moe/fused_moe.py`, BLOCK_SIZE_M)
TILES = (16, 128)
#: rows to which each expert's are filled up in 8 bits with scales of blocks, which DeepGEMM
#: multiplies (deepseek-ai/DeepGEMM `README.md`: contiguous layout; vLLM's default for such weights
#: on Hopper and Blackwell)
ALIGNED = 128
#: what the host takes for each sequence of a step [s]: vLLM 0.27.1's engine loop without a device,
#: profiled with all sequences decoding (openfabric-systems/simllm#204, which calls it diagnostic)
HOST_SEQUENCE = 12.7e-6
#: parts of a step, as they are told
PARTS = ("compute", "memory_bandwidth", "network", "host")


@dataclass
class StepParts:
    """Seconds of a step by what they are spent on; `host` is what it waits for the host beside the
    device's own work."""

    compute: float = 0.0
    memory_bandwidth: float = 0.0
    network: float = 0.0
    host: float = 0.0

    @property
    def seconds(self) -> float:
        return self.compute + self.memory_bandwidth + self.network + self.host

    def longer(self, computing: float, reading: float, least: float = 0.0) -> None:
        """A kernel that takes the longer of both, and `least` at least."""
        took = max(computing, reading, least)
        if computing >= reading:
            self.compute += took
        else:
            self.memory_bandwidth += took


class StepPace:
    """Seconds of steps of a service: `decoder` on `device`, with `exchanges` between ranks."""

    def __init__(self, decoder: Decoder, device: Device, exchanges: StepExchanges) -> None:
        self.decoder, self.device, self.exchanges = decoder, device, exchanges
        known = device.generation in PRODUCTS
        self.share = reached(device, "bf16")[0] if known else DEFAULT_EFFICIENCY
        self.half = NARROW[device.generation] if known else 0.0
        best = ATTENTION["library"].get(device.generation)
        first = ATTENTION["library"]["ampere"][0] / PRODUCTS["ampere"]
        self.attending = best[0] if best else first * self.share
        if "bf16" not in device.peak:
            raise Refused(
                f"{device.name} computes nothing in bf16, which is what is served (it has "
                f"{', '.join(device.peak)}); a machine of Ampere or newer is accepted",
                ("cluster", "machine"),
            )
        self.peak = device.peak_for("bf16")
        eight = any(matrix.eight for matrix, _ in decoder.matrices)
        eight = eight or any(experts.eight for experts, _ in decoder.experts)
        if eight and "fp8" not in device.peak:
            raise Refused(
                f"{device.name} computes nothing in 8 bits; bf16 is accepted",
                ("serving", "weights"),
            )
        self.eight = device.peak_for("fp8") * PRODUCTS_SHARE if eight else self.peak
        self._known: dict[tuple[int, int], StepParts] = {}
        self.lockstep = bool(decoder.experts) and exchanges.replicas > 1

    def step(self, work: StepWork, most: int, everyone: int) -> StepParts:
        """A step of a rank that computes `work`, beside ranks of which one has `most` tokens and
        all have `everyone`, in lockstep."""
        tokens = max(most if self.lockstep else work.tokens, 1)
        parts = replace(self._of_tokens(tokens, everyone if self.lockstep else tokens))
        for matrix, many in self.decoder.matrices:
            if matrix.once:
                self._product(parts, matrix, many, work.logits)
        self._attention(parts, work)
        moved = self.decoder.streamed * tokens * 2.0 + 4.0 * self.decoder.vocabulary * work.logits
        least = self.decoder.kernels * GRAPH_LAUNCH
        parts.longer(0.0, moved / self.device.memory_bandwidth / STREAMED, least)
        logits = work.logits * self.decoder.vocabulary * 2.0
        parts.network += self.exchanges.among_tensor("all_gather", logits)
        self._hosted(parts, work.chunks)
        return parts

    def _of_tokens(self, tokens: int, everyone: int) -> StepParts:
        """What a step of so many tokens takes whatever it looks at: products, experts, and what is
        exchanged for them."""
        key = tokens, everyone
        if key not in self._known:
            parts = StepParts()
            for matrix, many in self.decoder.matrices:
                if not matrix.once:
                    self._product(parts, matrix, many, tokens)
            for experts, many in self.decoder.experts:
                self._experts(parts, experts, many, everyone)
            parts.network = self._exchanged(tokens, everyone)
            self._known[key] = parts
        return self._known[key]

    def _hosted(self, parts: StepParts, sequences: int) -> None:
        """What the device waits for the host."""
        agreeing = self.exchanges.agreeing if self.lockstep else 0.0
        parts.host = max(HOST_SEQUENCE * sequences + agreeing - parts.seconds, 0.0)

    def reached(self, columns: float, *, eight: bool) -> float:
        """FLOP/s of products that sum over `columns`."""
        narrow = (1.0 + self.half / WIDE) / (1.0 + self.half / max(columns, 1.0))
        return (self.eight if eight else self.peak) * self.share * narrow

    def _product(self, parts: StepParts, own: HeldMatrix, many: int, tokens: float) -> None:
        if not tokens:
            return
        flop = 2.0 * own.rows * own.columns * tokens
        computing = flop / self.reached(own.columns, eight=own.eight)
        bandwidth = self.device.memory_bandwidth * TOGETHER
        reading = own.rows * own.columns * own.width / bandwidth
        parts.longer(many * computing, many * reading, many * GRAPH_LAUNCH)

    def _attention(self, parts: StepParts, work: StepWork) -> None:
        own, device = self.decoder, self.device
        reading = own.keys / (device.memory_bandwidth * STREAMED)
        rate = self.peak * self.attending
        parts.longer(own.pair * work.pairs / rate, reading * work.prompt_context)
        parts.longer(own.read_pair * work.context / rate, reading * work.context)

    def _experts(self, parts: StepParts, own: HeldExperts, many: int, tokens: float) -> None:
        """The experts of a device, of all layers; their products compute and read one after the
        other (`dpsim.models.compute.APART`)."""
        share = 1.0 / self.exchanges.ranks
        chosen = own.experts * share * (1.0 - (1.0 - own.chosen / own.experts) ** tokens)
        rows = tokens * own.chosen * share
        flop = 2.0 * own.elements * padded(rows, chosen, aligned=own.width == 1.0)
        computing = flop / self.reached(own.hidden, eight=own.eight)
        held = own.elements * own.width * chosen
        parts.compute += many * computing
        parts.memory_bandwidth += many * held / (self.device.memory_bandwidth * TOGETHER)

    def _exchanged(self, tokens: float, everyone: float) -> float:
        """Collectives of a step of a replica with `tokens` tokens, of `everyone`'s, but for
        logits."""
        own, links = self.decoder, self.exchanges
        size = tokens * own.hidden * 2.0
        sparse = sum(many for _, many in own.experts)
        reduced = own.exchanged - (sparse if self.lockstep else 0)
        found = reduced * links.among_tensor("all_reduce", size)
        if self.lockstep:
            whole = everyone * own.hidden * 2.0
            found += sparse * links.among_all("all_gather", whole)
            found += sparse * links.among_all("reduce_scatter", whole)
            found += sparse * links.among_tensor("all_gather", size)
        return found


class StretchedPace:
    """`pace` with steps that take `factor` times as long."""

    def __init__(self, pace: StepPace | StretchedPace, factor: float) -> None:
        self.pace, self.factor = pace, factor
        self.lockstep: bool = pace.lockstep

    def step(self, work: StepWork, most: int, everyone: int) -> StepParts:
        """See `StepPace.step`."""
        parts = self.pace.step(work, most, everyone)
        return StepParts(*(self.factor * getattr(parts, name) for name in PARTS))


def padded(rows: float, experts: float, *, aligned: bool) -> float:
    """Rows that grouped products compute for `rows` of so many `experts`: half a tile more for each
    expert, of about as many rows as one has; `aligned`: filled up to whole ones of `ALIGNED`."""
    each = rows / max(experts, 1e-9)
    if not aligned:
        return rows + experts * min(max(each, TILES[0]), TILES[1]) / 2
    return experts * max(each + ALIGNED / 2, ALIGNED)
