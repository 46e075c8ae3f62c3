"""PyTorch execution traces (Chakra): recognised, and refused, because they carry no durations.

Schemas "1.0.2-chakra.0.0.4" and "1.1.0-chakra.0.0.4": mlcommons/chakra, pytorch
torch/csrc/profiler/standalone/execution_trace_observer.cpp.
"""

from __future__ import annotations

import re
from pathlib import Path

from dpsim.core.record import Refused
from dpsim.measurements.findings import Findings
from dpsim.measurements.readers import HEAD_BYTES, Reader, content, opens_json

_SCHEMA = re.compile(rb'"schema"\s*:\s*"([^"]{0,40}chakra[^"]{0,40})"')


class ExecutionTrace(Reader):
    """Refuses execution traces, and says what to give instead."""

    def claims(self, path: Path, head: bytes) -> bool:
        return _archive(head) or (opens_json(head) and _SCHEMA.search(head) is not None)

    def read(self, path: Path) -> Findings:
        head = content(path, HEAD_BYTES)
        if _archive(head):
            raise Refused("is a tar archive; unpack it and give the files in it")
        found = _SCHEMA.search(head)
        name = found[1].decode("utf-8", "replace") if found else "unknown"
        raise Refused(
            f"is a PyTorch execution trace (schema {name}): it has sizes but no durations; give "
            "the Kineto trace of the same run (torch.profiler, export_chrome_trace)"
        )


def _archive(head: bytes) -> bool:
    return head[257:262] == b"ustar"
