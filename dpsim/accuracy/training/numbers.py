"""Numbers of a table's cells, as people write them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dpsim.accuracy.training.columns import is_time, plain_unit
from dpsim.accuracy.words import vocabulary
from dpsim.core.record import Check
from dpsim.core.units import Unit

#: numbers without which a row means nothing; it is refused where one is not right
STRICT = ("total_gpus", "gpus_per_node", "nodes", "value", "step_time_s", "throughput_global")
#: numbers that may be words instead ("64 (s128) / 8 (s512)"), and then mean nothing
LOOSE = (
    "params_m", "inter_gbits_s_per_node", "grad_accum", "batch_per_gpu", "global_batch", "seq_len",
    "tp", "pp", "dp", "cp", "ep", "rel_unc_pct",
)  # fmt: skip
NUMBERS = (*STRICT, *LOOSE)
#: columns of what was measured
MEASURED = ("value", "step_time_s", "throughput_global")
_COUNTS = ("total_gpus", "gpus_per_node", "nodes")
#: thousands that are no decimals: in several groups, or before a decimal point; and in one group
_MANY_THOUSANDS = re.compile(r"[1-9]\d{0,2}(?:(?:,\d{3}){2,}(?:\.\d+)?|,\d{3}\.\d+)")
_ONE_THOUSAND = re.compile(r"[1-9]\d{0,2},\d{3}")
_THOUSANDS = re.compile(r"[1-9]\d{0,2}(?:[, \u00a0\u202f]\d{3})+")
#: tokens of a sequence in powers of two, as their lengths are told: 8K is 8,192
_KILO = re.compile(r"(\d{1,4}) ?[kK]")
#: thousands and millions of a rate, in powers of ten: 86k, 1.2M
_MULTIPLE = re.compile(r"(\d+(?:\.\d+)?) ?([kKM])")
_MULTIPLES = {"k": 1e3, "K": 1e3, "M": 1e6}
#: before what is rounded
_ABOUT = re.compile(r"^(?:[~\u2248\u223c]|(?:about|approx(?:\.|imately)?|ca\.|circa)(?= ?\d)) ?")
_COUNT, _QUANTITY = Check(1, 1_048_576), Unit("1", high=1e15)


def is_rate(column: str, cells: Mapping[str, str]) -> bool:
    """Whether a column holds a rate; a time with a comma before three digits may be either."""
    rate = column == "value" and not is_time(cells.get("unit", ""))
    return rate or column == "throughput_global"


def plain_length(text: str) -> str:
    """The tokens of the longest sequence, where `text` says that others are shorter; "" where it
    says that all differ, or counts no tokens.

    >>> plain_length("512 (max)"), plain_length("up to 2K"), plain_length("variable")
    ('512', '2K', '')
    >>> plain_length("80 frames"), plain_length("64 / 8")
    ('', '64 / 8')
    """
    words = vocabulary().tables
    if words.no_length.search(text.strip().lower()):
        return ""
    longest = words.at_most.search(text.strip().lower())
    return (longest["after"] or longest["before"]).strip(" ,.").upper() if longest else text


def plain_precision(text: str) -> str:
    """`text` without what stands behind the words that it is not stated.

    >>> plain_precision("not stated (nanoGPT default)"), plain_precision("not stated (AMP)")
    ('not stated', 'not stated (AMP)')
    """
    found = vocabulary().no_format.fullmatch(text.strip().lower())
    return found["said"] if found else text


#: how cells of these columns are told plainly
PLAIN = {
    "unit": plain_unit, "throughput_unit": plain_unit, "seq_len": plain_length,
    "precision": plain_precision,
}  # fmt: skip


def read_number(text: str, column: str, grouped: bool = False, rate: bool = False) -> float:
    """The number of a cell; one that counts may have commas between thousands, and so may a `rate`
    in a table whose commas are `grouped` for that alone.

    >>> [read_number("141.2K", "value", rate=True), read_number("~6300", "value")]
    [141200.0, 6300.0]
    """
    plain = vocabulary().tables.behind.sub("", text)
    if column in MEASURED:
        plain = _ABOUT.sub("", plain)
    if (column in _COUNTS or column in LOOSE) and _THOUSANDS.fullmatch(plain):
        plain = re.sub(r"\D", "", plain)
    elif _MANY_THOUSANDS.fullmatch(plain) or (grouped and rate and _ONE_THOUSAND.fullmatch(plain)):
        plain = plain.replace(",", "")
    elif column in MEASURED and re.fullmatch(r"\d+(?:,\d+)+(?:\.\d+)?", plain):
        raise ValueError(
            f"{text[:40]!r} has a comma that may be a decimal one: decimals have a point, as 12.5; "
            "76,000 is read in a rate, where commas separate cells and none is before decimals"
        )
    if column == "seq_len" and (kilo := _KILO.fullmatch(plain)):
        plain = str(1024 * int(kilo[1]))
    if rate and (many := _MULTIPLE.fullmatch(plain)):
        return _QUANTITY.bare(many[1]) * _MULTIPLES[many[2]]
    return float(_COUNT.bare(plain)) if column in _COUNTS else _QUANTITY.bare(plain)
