"""Architectures: models that are known by name, a file each.

Contract.  A plug-in module of this folder holds one `Architecture`: a record whose fields are its
keys in a scenario (``model: {name: resnet50, image_size: 224}``) and whose `model()` returns a
`Model`.
"""

from __future__ import annotations

from dpsim.core.record import record
from dpsim.models import Model
from dpsim.models.tuning import Tunable


@record
class Architecture(Tunable):
    """Contract of this folder: a record with `model()`."""

    tag = "name"

    def model(self) -> Model:
        """The layers of this architecture with these settings."""
        raise NotImplementedError


CONTRACT = Architecture
