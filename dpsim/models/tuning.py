"""Which parameters of a model section's model are trained."""

from __future__ import annotations

from dpsim.core.record import Refused, Text, record
from dpsim.models import Model
from dpsim.models.adapters import Adapters
from dpsim.models.frozen import frozen, selected


@record
class Tunable:
    """A model section of which a part can be trained.

    trainable  patterns: the parameters that are trained, beside the adapters; left out: all, or the
               adapters alone.  A pattern is a regular expression for whole parts of the names of
               layers and parameters (`lm_head`, `.*norm.*`)
    adapters   trained low-rank matrices beside a frozen model
    """

    trainable: tuple[Text, ...] | None = None
    adapters: Adapters | None = None

    def tuned(self, model: Model) -> Model:
        """`model` with the adapters and the frozen parameters that are asked for.  Raises Refused
        where nothing would be trained, or a name matches nothing."""
        if self.adapters is not None:
            model = self.adapters.model(model)
        if self.trainable is not None:
            if not self.trainable:
                said = "an empty list trains nothing; give patterns, or leave it out"
                raise Refused(said, ("trainable",))
            model = selected(model, self.trainable)
        return frozen(model)
