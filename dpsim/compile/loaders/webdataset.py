"""WebDataset: tar files read from end to end by the workers of a DataLoader."""

from __future__ import annotations

from dpsim.compile.loaders._sharded import Sharded
from dpsim.core.record import record


@record
class Webdataset(Sharded):
    """Shards are dealt to ranks and workers (`split_by_node`, `split_by_worker`), each reads its
    own from end to end, through a shuffle buffer if there is one (webdataset documentation).
    """
