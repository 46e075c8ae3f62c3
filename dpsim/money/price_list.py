"""Price lists: one line of a CSV of instances and their prices.

Two forms are read: that of SkyPilot's catalogues (InstanceType, AcceleratorName, AcceleratorCount,
Price, SpotPrice, Region, … in any order), and a short one of its own: `instance`, `devices`,
`usd_per_hour`, `as_of`, `source`, with `region` and `spot_usd_per_hour` if wanted.  Every price has
a date and a source: the list's own columns, or what the scenario says beside `file`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from pathlib import Path

from dpsim.core import csvfile
from dpsim.core.files import stamp
from dpsim.core.lean import dataclass
from dpsim.core.record import Check, Refused
from dpsim.core.units import not_a_number
from dpsim.money.price import Price, check_date

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
_PRICE = re.compile(r"[0-9]{1,9}(\.[0-9]{1,15})?")
_DEVICES = Check(1, 99_999)


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
    rows = _read(path, stamp(path))
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
    quotes = {_quote(row, price) for row in chosen}
    if len({(q.usd_per_hour, q.devices) for q in quotes}) > 1:
        there = ", ".join(sorted({q.region or "none" for q in quotes})[:10])
        raise Refused(
            f"{price.row} has several prices; name a region: {there}", ("price", "region")
        )
    return min(quotes, key=lambda quote: quote.region)


@lru_cache(maxsize=4)
def _read(path: Path, _: object) -> tuple[Mapping[str, str], ...]:
    try:
        rows = csvfile.read(path, MAX_BYTES, once=())
        names = _names(rows)
        return tuple(
            {"place": f"{path.name}:{row.line}", **{o: row.get(t) for o, t in names.items()}}
            for row in rows
        )
    except Refused as error:
        raise Refused(str(error), ("price", "file")) from None


def _names(rows: csvfile.Table) -> dict[str, str]:
    """Which of the file's columns is which."""
    found = {}
    for ours, theirs in _COLUMNS.items():
        given = [column for column in dict.fromkeys((ours, theirs)) if column in rows.columns]
        if len(given) > 1:
            raise rows.refusal(f"has both {ours} and {theirs}; leave one of them out")
        if given:
            found[ours] = given[0]
    lacking = [key for key in _NEEDED if key not in found]
    if lacking:
        wanted = ", ".join(f"{key} (or {_COLUMNS[key]})" for key in lacking)
        raise rows.refusal(f"has no column {wanted}")
    return found


def _quote(row: Mapping[str, str], price: Price) -> Quote:
    where = f"{row['place']}: {price.row}"
    column = "spot_usd_per_hour" if price.spot else "usd_per_hour"
    text = row.get(column, "")
    if not _PRICE.fullmatch(text):
        what = f"{not_a_number(text)}: no price" if text else "has no price"
        kind = "spot " if price.spot else ""
        raise Refused(f"{where}: {what} for {kind}instances", ("price", "row"))
    try:
        count = _DEVICES.bare(row["devices"])
    except ValueError as error:
        raise Refused(f"{where}: accelerators: {error}", ("price", "row")) from None
    as_of, source = row.get("as_of") or price.as_of, row.get("source") or price.source
    for key, value in (("as_of", as_of), ("source", source)):
        if not value:
            message = "is missing: a price list needs a date and a source, as columns or here"
            raise Refused(message, ("price", key))
    if row.get("as_of"):
        check_date(row["as_of"], where)
    return Quote(
        name=row["instance"],
        devices=count,
        usd_per_hour=Decimal(text),
        device=row.get("device", ""),
        region=row.get("region", ""),
        as_of=as_of or "",
        source=source or "",
    )
