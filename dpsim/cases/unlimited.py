"""A loader that is no limit, beside what else feeds the ranks."""

from __future__ import annotations

from dpsim.compile.loaders import Loader
from dpsim.describe.sections import Input


def unlimited(given: Loader | Input | None) -> Input:
    """A loader that is no limit; batches are copied to the devices as `given` says."""
    return Input(limiting=False, copy=None if given is None else given.copy)
