"""Records of loaders, as `dpsim measure --input` writes them."""

from __future__ import annotations

from typing import Annotated, Literal

from dpsim.core import units
from dpsim.core.jsonfile import loads
from dpsim.core.record import Check, Refused, build, record

SCHEMA, VERSION = "dpsim-loader", 1


@record
class LoaderRecord:
    """What was timed.

    workers, prefetch   of the loader; batch: samples of a batch
    cold, cached        a worker's time for a sample, in the first pass and in the second
    first               until the first batch of the second pass, beyond making it
    """

    workers: Annotated[int, Check(0, 4096)]
    prefetch: Annotated[int, Check(1, 10_000)] = 2
    batch: Annotated[int, Check(1, 10**7)]
    cold: Annotated[float, units.Unit("s", high=1e6)]
    cached: Annotated[float, units.Unit("s", high=1e6)]
    first: Annotated[float, units.Unit("s", high=1e6)]

    def seconds(self, epoch: Literal["first", "later"]) -> float:
        """A worker's time for a sample in that epoch [s]."""
        return self.cold if epoch == "first" else self.cached


def parse(text: str) -> LoaderRecord:
    """The record written in `text`.  Refused, naming the place, for anything else."""
    data = loads(text)
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise Refused(f"is no record of dpsim measure --input (schema {SCHEMA!r})")
    if data.pop("schema_version", None) != VERSION:
        raise Refused(f"has another schema_version than {VERSION}, which this dpsim reads")
    del data["schema"]
    return build(LoaderRecord, data)
