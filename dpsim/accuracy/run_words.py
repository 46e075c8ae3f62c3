"""Words for what ran beside the model: strategies, NCCL's versions and hosts that decode (see
`dpsim.accuracy.words`)."""

from __future__ import annotations

from dpsim.accuracy.rules import KeyRule, Named, Words
from dpsim.core.record import Text, record


@record
class NcclVersions:
    """NCCL's versions: the torch that bundles each first, and the month of its release."""

    torch: Words
    bundled: dict[str, tuple[int, int]]
    released: dict[str, Text]


@record
class HostDecoding(Named):
    """A framework (`words`) that decodes on the host, in rows whose `columns` have such words:
    `threads` of a GPU's loader, physical `cores` of a node, `seconds` of a core for a sample."""

    columns: dict[str, Words]
    threads: int
    cores: int
    seconds: float


@record
class StrategyWords:
    """Strategies, what sets their keys, and what none of them plays."""

    refused: dict[str, Words]
    kinds: tuple[KeyRule, ...]
    switches: dict[str, tuple[KeyRule, ...]]
    torch: Words
    deepspeed: Words
    copies_out: Words
    no_overlap: Words
    servers: Words
    servers_on_hosts: Words
    repositories: Words
    by_mpi: Words
    hierarchical: Words
    hybrid: Words
    within_node: Words
    shared_by: Words
    axes: Words
    partition: Words
    zero_plus: Words
    weights: Words
    copies: Words
    gradients: Words
    compressions: tuple[KeyRule, ...]
    hook: Words
    compressed: Words
    uncompressed: Words
    not_compressed: Words
    degrees: dict[str, Words]
    shares: dict[str, Words]
    not_shared: Words
    in_some_way: Words
    beside_computing: Words
    sequences: Words
    plain_groups: Words
    submitted: Words
    submitted_by: Words
    overlapped_sums: Words
    splits_sequences: Words
    torch_mesh: Words
    shared_out: Words
    interleaved: Words
    plain: Words
    recipe: Words
    chunks: Words
    layout: Words
    one_f_one_b: Words
    unsaid: Words
    schedules: tuple[KeyRule, ...]
    ring: Words
    ulysses: Words
    denied: Words
    perhaps: Words
    sharded: Words
