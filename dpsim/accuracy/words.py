"""What the free words of measured tables mean: `words.yaml`, read strictly, and how it is applied.

Sources write hardware, models and strategies in words of their own.  All that dpsim understands of
them stands in that one file; the modules that read tables keep only the rules that are no words.
"""

from __future__ import annotations

import re
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any

from dpsim.accuracy.model_words import ExpertWords, FewBitsWords, ModelWords, SliceWords
from dpsim.accuracy.rules import ANY, KeyRule, Named, Texts, Words
from dpsim.accuracy.run_words import HostDecoding, NcclVersions, StrategyWords
from dpsim.core import yamlfile
from dpsim.core.record import Count, Flag, Natural, Refused, Text, build, record
from dpsim.machines.devices import NetworkKind

# -- machines -------------------------------------------------------------------------------------


@record
class Board(Named):
    """A board of an accelerator: its `device`, its `form` (module or card, "" where the family has
    one), a list of nodes that it is fitted to, and the `note` that its choice needs.  The one
    without words is a guess, where the text names none of the `platforms` that have another one.
    With `gpus`, it is meant where a node has so many alone; 0: however many."""

    device: Text
    fitted: Text
    form: Text = ""
    note: Text = ""
    platforms: Words = ANY
    gpus: Natural = 0

    @property
    def guessed(self) -> bool:
        return not self.words.pattern


@record
class Family(Named):
    """A family of accelerators; `nic` is the usual line rate of one NIC beside it [Gbit/s]."""

    nic: float
    boards: tuple[Board, ...]


@record
class AcceleratorWords:
    """Accelerators by name, and what stands in for one that isn't stated."""

    asked: Words
    spellings: dict[str, Words]
    several: Words
    refused: dict[str, Words]
    memory_taken: Words
    memory_shown: Words
    stated_memory: Words
    stated_power: Words
    families: tuple[Family, ...]
    not_stated: Words
    geforce: Family
    any_gpu: Family
    cards_alone: Words
    cards: Words
    modules: Words
    on_pcie: Words
    on_nvlink: Words
    on_switch: Words
    on_pairs: Words
    hosts: Words


@record
class WiredNode:
    """The node of a machine: how its GPUs are wired, and how many it holds."""

    wiring: Text
    gpus: Count


@record
class NamedMachine(Named):
    """A platform with a name: the lists of nodes that its boards are fitted to, the machine, and
    what there is to tell of it."""

    fitted: Texts
    machine: Text
    note: Text = ""


@record
class NodeWords:
    """Machines, the boards that they hold, and words for the inside of a node."""

    sizes: dict[str, Words]
    machines: dict[str, WiredNode]
    fitted: dict[str, Texts]
    wiring: dict[str, Words]
    xgmi: Words
    nvlink: Words
    refused: dict[str, Words]
    no_nvlink: Words
    no_switch: Words
    pcie_generation: Words
    no_peers: Words
    bridges: Words
    peers: Words
    platforms: tuple[NamedMachine, ...]


# -- what words leave open ------------------------------------------------------------------------


@record
class Likely:
    """An answer to a question that words leave open: its weight, and what it is called."""

    weight: float
    label: Text


@record
class OpenWords:
    """Questions that words may leave open, with their answers, of some by situation; what each is
    about is told in `words.yaml`.  `modules_from` is in NICs per GPU."""

    board: dict[str, dict[str, Likely]]
    modules_from: float
    peers: dict[str, Likely]
    bridges: dict[str, Likely]
    network: dict[str, dict[str, Likely]]
    speed: dict[str, dict[str, Likely]]
    count: dict[str, Likely]
    kind: dict[str, Likely]
    ports: dict[str, Likely]
    together: dict[str, Likely]
    ethernet: dict[str, Likely]


@record
class LikelyRun(Likely):
    """An answer to what a row leaves open of its run: what `cells` then say, by column."""

    cells: dict[str, Text]


@record
class OpenRun:
    """A question that a row leaves open where `columns` have these words, none of `unless` has
    its words, and numbers are at least `least`.  Words of several columns, with a bar between their
    names, may be those of any."""

    question: Text
    columns: dict[str, Words]
    answers: dict[str, LikelyRun]
    unless: dict[str, Words] = field(default_factory=dict)
    least: dict[str, float] = field(default_factory=dict)


# -- networks between nodes -----------------------------------------------------------------------


@record
class NamedFabric(Named):
    """A kind of network; `broad` where its words may mean another one too."""

    kind: NetworkKind
    broad: Flag = False
    note: Text = ""


@record
class RateUnit:
    """A unit of rates: how many Gbit/s one is, and whether it counts bytes."""

    gbits: float
    bytes: Flag = False


@record
class NamedRate(Named):
    """A line rate of one NIC [Gbit/s]."""

    gbits: float


@record
class NamedNics(NamedRate):
    """The NICs of each node of a platform with a name, who says so, and their kind where it is
    not that of the machine that stands for it; `ethernet` is its rate beside them [Gbit/s]."""

    nics: Count
    source: Text
    kind: NetworkKind | None = None
    ethernet: float = 0.0


@record
class NetworkWords:
    """Words for what joins nodes, how many NICs a node has and how fast they are [Gbit/s]; what
    they do is in `dpsim.accuracy.grammar`."""

    settings: dict[str, Words]
    settings_aside: Words
    host_memory: Words
    benchmark: Words
    inside: Words
    outside: Words
    to_host: Words
    label: Words
    silent: Words
    ports: Words
    aside: Words
    tcp: Words
    tcpx: Words
    no_rdma: Words
    no_roce: Words
    no_kind: Words
    unused: Words
    no_gpudirect: Words
    slashed: Words
    unused_beside: Words
    refused: dict[str, Words]
    spellings: dict[str, Words]
    spoken: dict[str, int]
    counted: Words
    two_ports: Words
    kinds: tuple[NamedFabric, ...]
    on_ethernet: Words
    speeds: Words
    generations: tuple[NamedRate, ...]
    held: Words
    running: Words
    usual: dict[NetworkKind, float]
    line_rates: tuple[float, ...]
    ethernet_rates: tuple[float, ...]
    infiniband_from: float
    slow: float
    fast: Words
    host_latency: dict[str, Text]
    rdma_from: float
    platforms: tuple[NamedNics, ...]
    uses: dict[str, Words]
    lanes: Words
    names: Words
    gigabit: Words
    slips: Words
    swapped: Words
    rate: Words
    rates: dict[str, RateUnit]
    volumes: dict[str, RateUnit]
    scopes: dict[str, Words]
    before: dict[str, Words]
    scope_alone: Words
    never_bytes: tuple[float, ...]
    one_way: Words
    duplex: Words
    both_ways: Words
    per_gpu: Words
    one_each: Words
    several_each: Words
    count: tuple[Words, ...]
    counts: dict[int, Words]


# -- training runs and collectives ----------------------------------------------------------------


@record
class TableWords:
    """Columns and units of a table of training runs; times in seconds."""

    columns: dict[str, Text]
    unclear: dict[str, Text]
    times: dict[str, float]
    spelled: dict[str, Text]
    run_times: dict[str, float]
    part_times: Words
    strong: Words
    counted_times: Words
    other_units_of_time: Words
    aside: Words
    samples: Texts
    short: dict[str, Text]
    rates: dict[str, str]
    throughput: Words
    nothing: Words
    inference: Words
    more_passes: Words
    not_classified: Words
    of_peak: Words
    per_gpu: Words
    per_other: Words
    of_all: Words
    other_times: Words
    of_step: Words
    part_of_step: Words
    time_of: Words
    steps: Texts
    at_most: Words
    no_length: Words
    behind: Words
    in_tokens: Words
    per_node: Words


@record
class ComparedWords:
    """That a clause tells of another run, and what stands before the thing that this one has."""

    told: Words
    behind: Words


@record
class CollectiveWords:
    """Words of tables of collectives."""

    operations: dict[str, Text]
    flags: dict[str, Flag]
    libraries: dict[str, Words]
    mpich: Words
    open_mpi_4: Words
    algorithms: dict[str, Text]
    version: Words
    free: Texts


@record
class Vocabulary:
    """All of `words.yaml`."""

    accelerators: AcceleratorWords
    nodes: NodeWords
    open: OpenWords
    network: NetworkWords
    tables: TableWords
    models: ModelWords
    strategies: StrategyWords
    experts: ExpertWords
    slices: SliceWords
    runs: tuple[OpenRun, ...]
    precision: tuple[KeyRule, ...]
    optimizer: tuple[KeyRule, ...]
    host: tuple[KeyRule, ...]
    no_format: Words
    no_precision: Words
    few_bits: FewBitsWords
    tpus: Words
    input: tuple[KeyRule, ...]
    decoding: tuple[HostDecoding, ...]
    attention: tuple[KeyRule, ...]
    compared: ComparedWords
    recomputation: Words
    recomputing: Words
    recomputing_notes: Words
    keeping_notes: Words
    recomputing_of_none: Words
    recomputing_some: Words
    no_recomputing: Words
    recompute: tuple[KeyRule, ...]
    execution: tuple[KeyRule, ...]
    image_execution: tuple[KeyRule, ...]
    image_layout: tuple[KeyRule, ...]
    tensor_float: tuple[KeyRule, ...]
    nccl: NcclVersions
    collectives: CollectiveWords


@cache
def vocabulary() -> Vocabulary:
    """The shipped words.  Raises FileRefused where the file is not right."""
    path = Path(__file__).with_name("words.yaml")
    data, lines = yamlfile.load(path, path.name)
    terms: dict[str, str] = {}
    for name, text in data.pop("terms").items():
        terms[name] = _filled(text, terms)
    try:
        return build(Vocabulary, _filled(data, terms), file=True)
    except Refused as error:
        raise yamlfile.located(error, path.name, lines) from None


def _filled(value: Any, terms: dict[str, str]) -> Any:
    """`value` with every {name} replaced by the term of that name."""
    if isinstance(value, dict):
        return {key: _filled(item, terms) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, terms) for item in value]
    if not isinstance(value, str):
        return value
    return re.sub(r"\{([a-z_]\w*)\}", lambda name: terms[name[1]], value)
