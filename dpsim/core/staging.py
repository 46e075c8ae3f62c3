"""Folders in which files become whole before they get their place: locked by the process that
writes there, and gone when it ends, at the latest when the next one comes."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

STAGE = ".dpsim-writing-"


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder for this process alone; if it is killed, the next one removes it."""
    with staged(Path(tempfile.gettempdir()), 0o700) as folder:
        inside = folder / "inside"  # whose lock is not held
        inside.mkdir()
        yield inside


@contextlib.contextmanager
def staged(place: Path, mode: int = 0o777) -> Iterator[Path]:
    """A folder in `place`, locked, and gone afterwards unless it was renamed; those of processes
    that have ended are removed."""
    sweep(place)
    while True:
        folder = place / f"{STAGE}{secrets.token_hex(8)}"
        try:
            folder.mkdir(mode)
            with locked(folder):
                if folder.is_dir():  # nobody took it for a leftover before it was locked
                    yield folder
                    return
        finally:
            with undisturbed():
                shutil.rmtree(folder, ignore_errors=True)


def sweep(place: Path) -> None:
    """Remove what processes that have ended were writing in `place`."""
    for left in place.glob(f"{STAGE}*"):
        with contextlib.suppress(OSError), locked(left, wait=False) as sure:
            if sure:
                shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def locked(folder: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of `folder`, which the system takes back when this process ends; says False
    where the system has none.  Not waiting, OSError if another process holds it."""
    try:
        import fcntl

        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except (ImportError, FileNotFoundError):
        yield False
        return
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            if not wait:
                raise
            yield False  # a file system without locks
            return
        yield True
    finally:
        os.close(file)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Signals that interrupt come after the block, not inside it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    wanted = (signal.SIGINT, signal.SIGTERM)
    before = {one: signal.signal(one, lambda number, _: came.append(number)) for one in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if came:
            signal.raise_signal(came[0])


def sync(folder: Path) -> None:
    """Make what was renamed in `folder` last."""
    with contextlib.suppress(OSError):  # some systems cannot open folders
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
