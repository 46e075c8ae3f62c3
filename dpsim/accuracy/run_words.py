"""Words for what ran beside the model: NCCL's versions and hosts that decode (see
`dpsim.accuracy.words`)."""

from __future__ import annotations

from dpsim.accuracy.rules import Named, Words
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
