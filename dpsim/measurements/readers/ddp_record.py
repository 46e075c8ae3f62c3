"""Records of real DDP steps (schema "dpsim-ddp-record"): recognised, and refused with a hint.

Such a record is played as a model; its step times belong to that model alone.
"""

from __future__ import annotations

import re
from pathlib import Path

from dpsim.core.record import Refused
from dpsim.measurements.findings import Findings
from dpsim.measurements.readers import Reader, opens_json

_SCHEMA = re.compile(rb'"schema"\s*:\s*"dpsim-ddp-record"')


class DdpRecord(Reader):
    """Refuses records of DDP steps, and says where they belong."""

    def claims(self, path: Path, head: bytes) -> bool:
        return opens_json(head) and _SCHEMA.search(head) is not None

    def read(self, path: Path) -> Findings:
        raise Refused(
            "is a record of DDP steps; it is played as a model: "
            f"write `model: {{record: {path.name[:80]}}}` in a scenario"
        )
