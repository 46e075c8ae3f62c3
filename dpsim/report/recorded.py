"""What `dpsim measure` says about its record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsim.core.units import show

if TYPE_CHECKING:
    from dpsim.models.recording import Recording


def recorded(found: Recording) -> str:
    """The model, its step and its buckets, in a sentence."""
    sizes = ", ".join(f"{bucket.bytes / 2**20:.4g}" for bucket in found.steady_buckets[:8])
    more = ", …" if len(found.steady_buckets) > 8 else ""
    return (
        f"{found.model} on {found.device.name}, rank 0 of {found.world_size:,}: "
        f"{show(found.step.end_s, 's')} a step with hooks, {show(found.plain_step, 's')} without; "
        f"batch {found.batch}; buckets of {sizes}{more} MiB"
    )
