"""Price lists: one line of a CSV of instances and their prices.

Two forms are read: that of SkyPilot's catalogues (InstanceType, AcceleratorName, AcceleratorCount,
Price, SpotPrice, Region, … in any order), and a short one of its own: `instance`, `devices`,
`usd_per_hour`, `as_of`, `source`, with `region` and `spot_usd_per_hour` if wanted.  Every price has
a date and a source: the list's own columns, or what the scenario says beside `file`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from pathlib import Path

from dpsim.core import csvfile
from dpsim.core.files import Unreadable, read_text
from dpsim.core.record import Refused
from dpsim.money.price import Price

MAX_BYTES = 50_000_000
#: our names of the columns, with SkyPilot's
_COLUMNS = {
    "instance": "InstanceType",
    "device": "AcceleratorName",
    "devices": "AcceleratorCount",
    "usd_per_hour": "Price",
    "spot_usd_per_hour": "SpotPrice",
    "region": "Region",
    "as_of": "as_of",
    "source": "source",
}
_NEEDED = ("instance", "devices", "usd_per_hour")
_PRICE = re.compile(r"\d{1,9}(\.\d{1,15})?")


@dataclass(frozen=True)
class Quote:
    """One line of a price list: an instance of `devices` devices for so many dollars an hour."""

    name: str
    devices: int
    usd_per_hour: Decimal
    device: str = ""
    region: str = ""
    as_of: str = ""
    source: str = ""


def read_quote(path: Path, price: Price) -> Quote:
    """The line of the list at `path` that `price` names.

    Raises Refused, naming the key of the scenario, where there is none, where several have
    different prices, or where it lacks a price, a number of devices, a date or a source.
    """
    assert price.row is not None
    stamp = path.stat()
    rows = _read(path, (stamp.st_mtime_ns, stamp.st_size))
    chosen = [row for row in rows if row["instance"] == price.row]
    if not chosen:
        near = difflib.get_close_matches(price.row, [r["instance"] for r in rows], n=1, cutoff=0.5)
        hint = f"; did you mean {near[0][:60]!r}?" if near else ""
        raise Refused(f"{path.name} has no instance {price.row[:60]!r}{hint}", ("price", "row"))
    if price.region is not None:
        found = [row for row in chosen if row.get("region") == price.region]
        if not found:
            there = ", ".join(sorted({row.get("region") or "none" for row in chosen})[:10])
            raise Refused(
                f"{price.row} is not offered there; it is in {there}", ("price", "region")
            )
        chosen = found
    quotes = {_quote(row, price, path.name) for row in chosen}
    if len({(q.usd_per_hour, q.devices) for q in quotes}) > 1:
        there = ", ".join(sorted({q.region or "none" for q in quotes})[:10])
        raise Refused(
            f"{price.row} has several prices; name a region: {there}", ("price", "region")
        )
    return min(quotes, key=lambda quote: quote.region)


@lru_cache(maxsize=4)
def _read(path: Path, stamp: tuple[int, int]) -> tuple[Mapping[str, str], ...]:
    try:
        columns, rows = csvfile.table(read_text(path, MAX_BYTES, "replace"))
        names = _names(columns, path.name)
        return tuple(
            {ours: row[theirs].strip() for ours, theirs in names.items()} for _, row in rows
        )
    except Unreadable as error:
        raise Refused(f"{path.name} {error.brief}", ("price", "file")) from None


def _names(given: Sequence[str], name: str) -> dict[str, str]:
    """Which of the file's columns is which."""
    found = {}
    for ours, theirs in _COLUMNS.items():
        for column in (ours, theirs):
            if column in given:
                found[ours] = column
    lacking = [key for key in _NEEDED if key not in found]
    if lacking:
        wanted = ", ".join(f"{key} (or {_COLUMNS[key]})" for key in lacking)
        raise Refused(f"{name} has no column {wanted}", ("price", "file"))
    return found


def _quote(row: Mapping[str, str], price: Price, name: str) -> Quote:
    column = "spot_usd_per_hour" if price.spot else "usd_per_hour"
    text = row.get(column, "")
    if not _PRICE.fullmatch(text):
        what = f"{text[:40]!r} is no price" if text else "has no price"
        kind = "spot " if price.spot else ""
        raise Refused(f"{name}: {price.row}: {what} for {kind}instances", ("price", "row"))
    count = row.get("devices", "")
    if not re.fullmatch(r"[1-9]\d{0,4}(\.0*)?", count):
        raise Refused(f"{name}: {price.row} has no whole number of accelerators", ("price", "row"))
    as_of, source = row.get("as_of") or price.as_of, row.get("source") or price.source
    for key, value in (("as_of", as_of), ("source", source)):
        if not value:
            message = "is missing: a price list needs a date and a source, as columns or here"
            raise Refused(message, ("price", key))
    return Quote(
        name=row["instance"],
        devices=int(float(count)),
        usd_per_hour=Decimal(text),
        device=row.get("device", ""),
        region=row.get("region", ""),
        as_of=as_of or "",
        source=source or "",
    )
