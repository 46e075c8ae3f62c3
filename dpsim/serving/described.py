"""What a serving scenario says: model, machine, engine and requests, read from YAML or JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from dpsim.core import units, yamlfile
from dpsim.core.lean import dataclass
from dpsim.core.overrides import apply_sets, called, changing, with_change
from dpsim.core.places import as_text, data_folder
from dpsim.core.record import Check, Refused, Text, build, record
from dpsim.describe.bundled import base_and_name, find
from dpsim.describe.scenario import placed
from dpsim.describe.written import plain_data

#: requests of a scenario, and tokens that they may come to: what a play is cut at
MOST_REQUESTS = 200_000
Tokens = Annotated[int, Check(1, 10_000_000)]


@record
class ServedModel:
    """Which language model is served.

    huggingface  a `config.json` below the scenario's folder, or a bundled name
    """

    huggingface: Text


@record
class ServingCluster:
    """The machine that the replicas share; as many nodes are filled in turn as they need.

    machine  a bundled machine, or a file below the scenario's folder
    """

    machine: Text


@record
class ServingEngine:
    """vLLM's engine, with its own names; every data-parallel rank has a scheduler, a KV cache and
    limits of its own.

    engine     whose engine
    replicas   data-parallel ranks (`--data-parallel-size`)
    tensor     GPUs of a rank (`--tensor-parallel-size`)
    max_num_seqs            sequences that a rank computes at once; left out: vLLM's default, 1,024
                            on devices of 70 GiB and more but A100, else 256
    max_num_batched_tokens  tokens of a rank's step; left out: 8,192 and 2,048 likewise
    max_model_len  tokens of the longest request, with its answer; left out: the model's positions.
                   vLLM does not start where a rank's KV cache holds fewer (vllm-project/vllm#2418)
    balancing  `internal`: API servers choose the rank with the least 4 x waiting + running;
               `external`: a balancer outside deals requests to ranks in turn; `hybrid`: to nodes in
               turn, and API servers choose among a node's ranks
    api_servers  processes that take requests and put out tokens (`--api-server-count`); with
                 external and hybrid balancing as many for each rank, and each node
    output_token  what one of them takes for a token that is put out; the default is worked out from
                 one report (A96)
    gpu_memory_utilization  share of a device's memory that weights, activations and KV cache take
    weights    of products in blocks: `bf16`, `fp8`, or `nvfp4`: experts and feed-forward parts in 4
               bits and a scale for each 16, all else in 16; it computes at the rate of 8 bits
    kv_cache   dtype of keys and values
    kv_blocks  blocks of 16 tokens of a rank, as vLLM logs them; left out: what memory leaves
    """

    engine: Literal["vllm"]
    replicas: Annotated[int, Check(1, 1024)]
    tensor: Annotated[int, Check(1, 64)] = 1
    max_num_seqs: Annotated[int, Check(1, 65_536)] | None = None
    max_num_batched_tokens: Annotated[int, Check(1, 1_048_576)] | None = None
    max_model_len: Tokens | None = None
    balancing: Literal["internal", "external", "hybrid"] = "internal"
    api_servers: Annotated[int, Check(1, 1024)] = 1
    output_token: units.Seconds = 17e-6
    gpu_memory_utilization: units.Fraction = 0.9
    weights: Literal["bf16", "fp8", "nvfp4"] = "bf16"
    kv_cache: Literal["bf16", "fp8"] = "bf16"
    kv_blocks: Annotated[int, Check(1, 10**9)] | None = None


@record
class Requests:
    """What is asked of the service: at a rate, by so many who each wait for their answer, or as a
    file says.

    count        requests; of a file those that it has
    rate         requests that come in a second, whether or not others are answered
    concurrency  instead: so many are under way at once, and each answer brings the next request
    file         instead: a file of JSON lines below the scenario's folder, each
                 `{"arrival_s": 0.5, "input": 812, "output": 120}`
    arrivals     of a rate: `poisson`, or `even`: always as long after one another
    input        tokens of a prompt, in the mean
    output       tokens of an answer, in the mean
    lengths      of both: `fixed`; `uniform`: between 1 - spread and 1 + spread times the mean;
                 `lognormal` with spread as standard deviation over the mean
    spread       how far lengths differ
    """

    count: Annotated[int, Check(1, MOST_REQUESTS)] = 1000
    rate: Annotated[float, units.Unit("1/s", high=1e6, above=True, example="16/s")] | None = None
    concurrency: Annotated[int, Check(1, 1_000_000)] | None = None
    file: Text | None = None
    arrivals: Literal["poisson", "even"] = "poisson"
    input: Tokens | None = None
    output: Tokens | None = None
    lengths: Literal["fixed", "uniform", "lognormal"] = "fixed"
    spread: Annotated[float, units.Unit("1", high=10.0)] = 0.0

    def __post_init__(self) -> None:
        given = [key for key in ("rate", "concurrency", "file") if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(
                f"needs one of rate, concurrency and file; has {' and '.join(given) or 'none'}"
            )
        if self.file is not None and (self.input is not None or self.output is not None):
            raise Refused("the file has the lengths of requests", ("input",))
        usual = {"count": 1000, "arrivals": "poisson", "lengths": "fixed", "spread": 0.0}
        for key, value in usual.items():
            if self.file is not None and getattr(self, key) != value:
                raise Refused("goes without a file, which says all of its requests", (key,))
        for key in ("input", "output"):
            if self.file is None and getattr(self, key) is None:
                raise Refused("is missing", (key,))
        if self.lengths == "fixed" and self.spread:
            raise Refused("goes with lengths: uniform or lognormal", ("spread",))
        if self.lengths == "uniform" and self.spread > 1:
            raise Refused("of uniform lengths is at most 1", ("spread",))


@record
class Service:
    """Everything that determines what `dpsim serve` answers.

    title     what it is called
    model     which model
    cluster   on what
    serving   by which engine
    requests  what it is asked
    seed      of arrivals and lengths
    """

    title: Text = ""
    model: ServedModel
    cluster: ServingCluster
    serving: ServingEngine
    requests: Requests
    seed: Annotated[int, Check(0, 2**31 - 1)] = 0


@dataclass(frozen=True)
class LoadedService:
    """A service, the folder of the files that it names, and its name.

    shown, lines, changed  its file, on which line each key stands, and what --set has changed
    """

    service: Service
    data: Mapping[str, Any]
    base: Path
    name: str
    shown: str = ""
    lines: yamlfile.Lines = field(default_factory=dict)
    changed: Mapping[str, str] = field(default_factory=dict)

    def placed(self, error: Refused) -> Refused:
        """`error` with the place at fault, of a service that was read."""
        return placed(error, self.shown, self.lines, self.changed) if self.shown else error


def read_service(source: str | Path, sets: Sequence[str] = ()) -> LoadedService:
    """Read a serving scenario (a file, or a bundled name), with ``a.b=v`` overrides in `sets`.

    Raises FileRefused (what, where, what would be accepted) for anything that is not right.
    """
    path = _find(source)
    shown = as_text(source) if path == Path(source) else path.name
    data, lines = yamlfile.load(path, shown)
    if not isinstance(data, dict):
        raise yamlfile.FileRefused("the file holds no mapping", shown=shown)
    before, changed = with_change(data, {}, ()), apply_sets(data, sets)
    base, name = base_and_name(path)
    try:
        found = taken_service(data, base, name)
        name = called(found.name, changing(before, data, changed))
        return replace(found, name=name, shown=shown, lines=lines, changed=changed)
    except Refused as error:
        raise placed(error, shown, lines, changed) from None


def _find(source: str | Path) -> Path:
    """The file of a path or a bundled name, with or without its folder `serving/`."""
    bundled = data_folder("scenarios") / "serving" / f"{as_text(source)}.yaml"
    plain = Path(source).name == as_text(source) and not Path(source).exists()
    return bundled if plain and bundled.is_file() else find(source)


def loaded_service(
    source: str | Path | Mapping[str, Any], sets: Sequence[str] = ()
) -> LoadedService:
    """The service that `source` (a file, a bundled name, plain data) describes, with ``a.b=v``
    overrides."""
    if isinstance(source, (str, Path)):
        return read_service(source, sets)
    if not isinstance(source, Mapping):
        raise Refused(
            f"a {type(source).__name__} is no service; accepted: a name, a path, or plain data "
            "with model, cluster, serving and requests"
        )
    data: dict[str, Any] = plain_data(source)
    before, changed = with_change(data, {}, ()), apply_sets(data, sets)
    found = taken_service(data)
    return replace(found, name=called(found.name, changing(before, data, changed)))


def taken_service(
    data: Mapping[str, Any], base: Path = Path(), name: str = "service"
) -> LoadedService:
    """A service from plain data; files that it names are below `base`."""
    if "serving" not in data and "strategy" in data:
        raise Refused("is missing; this is training, which `dpsim run` predicts", ("serving",))
    service = build(Service, data, file=True)
    return LoadedService(service, data, base, service.title or name)
