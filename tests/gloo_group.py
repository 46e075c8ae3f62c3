"""Leaving a gloo process group of this process alone."""

from __future__ import annotations

import time

import torch.distributed as dist

#: long beside what a thread of gloo's takes to drop a piece of work
_DROPPED = 0.2


def leave() -> None:
    """Destroy the group, once gloo's thread has dropped its last work: for that it needs the
    interpreter, which torch (2.13) holds while it waits for that thread, so both may wait forever.
    """
    time.sleep(_DROPPED)  # lets others have the interpreter
    dist.destroy_process_group()
