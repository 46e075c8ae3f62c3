"""Hugging Face datasets in streaming mode: files that a DataLoader's workers read as they go."""

from __future__ import annotations

from dpsim.compile.loaders._sharded import Sharded
from dpsim.core.record import record


@record
class Streaming(Sharded):
    """Files are dealt to ranks (`split_dataset_by_node`) and then to workers, of which those beyond
    the number of files of a rank get none (datasets documentation, "Stream").
    """
