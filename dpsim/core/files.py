"""Files of others are opened here.

What is read is a file or a pipe of limited size: a folder or a device, which may never end, is
refused at once, and what is too large before it fills the memory.
"""

from __future__ import annotations

import os
import stat
import sys
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from dpsim.core.record import Refused

#: what gzip begins with
GZIP = b"\x1f\x8b"
#: the name of standard input, and of standard output
STANDARD = Path("-")
#: device and inode of the files that were read since `note_reads`; None before it
_noted: ContextVar[set[tuple[int, int]] | None] = ContextVar("noted", default=None)


class Unreadable(Refused):
    """A file that cannot be read: `brief` says what is wrong with it, `line` where; the message
    adds the system's own reason."""

    def __init__(self, brief: str, line: int | None = None, reason: str = "") -> None:
        super().__init__(f"{brief}: {reason.lower()}" if reason else brief)
        self.brief, self.line, self.reason = brief, line, reason


def read_bytes(path: Path, most: int) -> bytes:
    """The content of the file or pipe at `path`, at most `most` bytes; Unreadable otherwise.

    A pipe is read to its end, once: what it held is there when it is read again.  So is standard
    input, which is called "-".
    """
    if path == STANDARD:
        if sys.stdin is None or sys.stdin.isatty():
            raise Unreadable("is standard input, and nothing comes from there: COMMAND | dpsim …")
        return _standard(sys.stdin.buffer, most)
    try:
        _check(os.stat(path), most)
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(path, flags), "rb") as file:
            found = os.fstat(file.fileno())
            _check(found, most)
            if (noted := _noted.get()) is not None:
                noted.add((found.st_dev, found.st_ino))
            raw = _piped(file, found, most) if stat.S_ISFIFO(found.st_mode) else file.read(most + 1)
    except FileNotFoundError:
        raise Unreadable("there is no such file") from None
    except OSError as error:
        raise Unreadable("cannot be read", reason=error.strerror or "unknown reason") from None
    except ValueError as error:  # a NUL inside the path
        if isinstance(error, Refused):
            raise
        raise Unreadable("is not a path") from None
    if len(raw) > most:
        raise _too_large(most)
    return raw


@lru_cache(maxsize=1)
def _standard(stream: BinaryIO, most: int) -> bytes:
    """What standard input holds: like a pipe, it is read once."""
    raw = stream.read(most + 1)
    if len(raw) > most:
        raise _too_large(most)
    if not raw:
        raise Unreadable("is standard input, which holds nothing")
    return raw


def streamed(path: Path) -> bool:
    """Whether `path` is no file in a folder: standard input, or a pipe of the shell's."""
    return path == STANDARD or path.parent.as_posix() in ("/dev/fd", "/proc/self/fd", "/dev")


def stamp(path: Path) -> object:
    """What is another once the file at `path` has changed; None where there is none."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


@lru_cache(maxsize=16)
def _held(device: int, inode: int) -> list[bytes]:
    """Where the content of that pipe is kept: readers look at a file before they read it."""
    return []


def _piped(file: BinaryIO, found: os.stat_result, most: int) -> bytes:
    """What a pipe holds; nobody waits for one that nobody writes to."""
    os.set_blocking(file.fileno(), True)
    raw, held = file.read(most + 1), _held(found.st_dev, found.st_ino)
    if raw:
        held[:] = [raw]
    elif not held:
        raise Unreadable("is a pipe that holds nothing")
    return held[0]


def note_reads() -> None:
    """From now on `was_read` knows what is read here: a command that will write begins.

    What other processes and threads read is not noted.
    """
    _noted.set(set())


def forget_reads() -> None:
    """The command has ended: a file that comes later may have the inode of one that was read."""
    _noted.set(None)


def was_read(path: Path) -> bool:
    """Whether the file at `path` has been read here, so far, since `note_reads`."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return False
    return (found.st_dev, found.st_ino) in (_noted.get() or ())


def _check(found: os.stat_result, most: int) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise Unreadable("is a folder; a file is needed")
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISFIFO(found.st_mode)):
        raise Unreadable("is a device or socket; a file or a pipe is needed")
    if found.st_size > most:
        raise _too_large(most)


def _too_large(most: int) -> Unreadable:
    return Unreadable(f"is larger than {most // 10**6} MB")


def read_text(path: Path, most: int, errors: str = "strict") -> str:
    """The same as text without a byte order mark, line ends as they are; `errors` as in
    `bytes.decode`."""
    return text_of(read_bytes(path, most), errors)


def text_of(raw: bytes, errors: str = "strict") -> str:
    """`raw` as text; Unreadable names the line that is not UTF-8."""
    try:
        return raw.decode("utf-8-sig", errors)
    except UnicodeDecodeError as error:
        if raw.startswith(GZIP):
            raise Unreadable("is compressed (gzip), and is read unpacked") from None
        line = raw.count(b"\n", 0, error.start) + 1
        raise Unreadable("is not UTF-8 text", line=line) from None
