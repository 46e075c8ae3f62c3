"""Readers of measurement files: one module per format; the folder is the list.

Contract.  A plug-in module of this folder holds one `Reader`.  Files are untrusted: readers go
through `content`, `text_content` or `json_content`, which limit size, decompressed size and depth.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from dpsim.core import jsonfile, plugins
from dpsim.core.files import GZIP, Unreadable, read_bytes, text_of
from dpsim.core.record import Refused
from dpsim.core.yamlfile import located
from dpsim.measurements.findings import Findings

HEAD_BYTES = 1_048_576
#: largest file, as it is and decompressed [B]
MAX_BYTES = 256_000_000
#: a gzip file may not grow by more than this; deflate itself ends at 1032 (zlib's technical notes)
MAX_RATIO = 200


class Reader:
    """Contract of this folder."""

    #: one phrase that says what it reads, for refusals; empty if it only recognises a format to
    #: refuse it
    accepts: str = ""

    def claims(self, path: Path, head: bytes) -> bool:
        """Whether the file is its business: by content, by name only where that cannot tell.

        `head` is the file's first HEAD_BYTES, decompressed where the file is gzip.
        """
        raise NotImplementedError

    def read(self, path: Path) -> Findings:
        """What the file says; Refused where it is not right."""
        raise NotImplementedError


CONTRACT = Reader


def readers() -> tuple[Reader, ...]:
    """One of every plug-in of this folder; those that fail to be made are left out."""
    found = []
    for _, cls in plugins.usable("readers"):
        with _left_out_if_wrong(), plugins.asked(cls, "making one"):
            found.append(cls())
    return tuple(found)


def read_any(path: Path) -> Findings:
    """What the one reader that claims `path` finds in it.

    Raises FileRefused, naming what is accepted, where none or several do.
    """
    try:
        head = content(path, HEAD_BYTES)
        claiming = [reader for reader in readers() if _claims(reader, path, head)]
        if not claiming:
            whole_json(path, head)
        if len(claiming) != 1:
            raise Refused(_unclear(claiming))
        (reader,) = claiming
        with plugins.asked(reader, "read") if plugins.of_another(reader) else nullcontext():
            return reader.read(path)
    except Refused as error:
        raise located(error, path.name, {}) from None


def _claims(reader: Reader, path: Path, head: bytes) -> bool:
    """Whether `reader` claims a file."""
    with _left_out_if_wrong(), plugins.asked(reader, "claims"):
        return reader.claims(path, head)
    return False


@contextmanager
def _left_out_if_wrong() -> Iterator[None]:
    """A reader of another package that fails disturbs no other: it is warned of."""
    try:
        yield
    except Refused as error:
        warnings.warn(f"left out: {error}", stacklevel=4)


def _unclear(claiming: list[Reader]) -> str:
    accepted = "; ".join(reader.accepts for reader in readers() if reader.accepts)
    if not claiming:
        return f"is no measurement that dpsim reads; accepted: {accepted}"
    names = " and ".join(map(plugins.name_of, claiming))
    return f"could be {names}; accepted: {accepted}"


def content(path: Path, limit: int | None = None) -> bytes:
    """The bytes of the regular file at `path`, decompressed where it is gzip.

    With `limit` only its first bytes, and no complaint if the rest is damaged.
    """
    raw = read_bytes(path, MAX_BYTES)
    if not raw:
        raise Refused("is empty")
    if not raw.startswith(GZIP):
        return raw if limit is None else raw[:limit]
    return _decompressed(raw, limit)


def _decompressed(raw: bytes, limit: int | None) -> bytes:
    most = min(MAX_BYTES, max(MAX_RATIO * len(raw), 1_000_000))
    decoder = zlib.decompressobj(wbits=31)
    try:
        text = decoder.decompress(raw, (most if limit is None else limit) + 1)
    except zlib.error:
        raise Refused("is damaged gzip") from None
    if limit is not None:
        return text[:limit]
    if len(text) > most:
        raise Refused(f"grows to more than {most / 1e6:,.0f} MB when decompressed")
    if not decoder.eof:
        raise Refused("is gzip that was cut short")
    if decoder.unused_data.strip(b"\0"):
        raise Refused("is gzip of several parts, or has more behind its end; give one file each")
    return text


def text_content(path: Path) -> str:
    """The file as text, line ends as newlines; Refused where it is binary."""
    raw = content(path)
    if b"\0" in raw:
        raise Refused("is binary, not text")
    try:
        text = text_of(raw)
    except Unreadable as error:
        raise Refused(f"line {error.line} {error.message}") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def json_content(path: Path) -> Any:
    """The file as strict JSON."""
    return jsonfile.loads(text_content(path))


def whole_json(path: Path, head: bytes) -> None:
    """Refuse gzip or JSON that is none to its end, with the reason: cut short, nested too deeply,
    …"""
    content(path)
    if opens_json(head) or head.lstrip()[:2] in (b"[[", b"[{"):
        json_content(path)


def opens_json(head: bytes) -> bool:
    """Whether a file that begins so is meant to be a JSON mapping."""
    return head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{"
