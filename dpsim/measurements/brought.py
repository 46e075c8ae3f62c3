"""What other programs' files describe, checked against what dpsim takes, written and told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dpsim.core.files import STANDARD
from dpsim.core.outputs import write_files
from dpsim.core.record import Refused
from dpsim.core.yamlfile import dump_yaml
from dpsim.measurements.kinds import (
    HOWS,
    NO_MACHINE,
    NO_MODEL,
    Account,
    Wishes,
    account_of,
    text_made,
)

#: reads a scenario's document, which names files of that folder; errors call it by that name
Load = Callable[[dict[str, Any], Path, str], object]


def bring(files: Sequence[Path], wanted: Wishes, load: Load | None = None) -> Account:
    """What becomes of the one file in `files`.

    Raises Refused where it is nothing that dpsim knows, or makes a scenario that `load` refuses.
    """
    if len(files) != 1:
        raise Refused(
            f"{len(files)} files; only the topology files of one node are read together, others "
            "one at a time"
        )
    account = account_of(files[0], wanted)
    if load is not None and account.makes == "scenario" and complete(account):
        assert account.document is not None
        try:
            load(dict(account.document), wanted.beside, account.file)
        except Refused as error:
            raise Refused(f"{account.file}: what was taken makes no scenario: {error}") from None
    return account


def complete(account: Account) -> bool:
    """Whether nothing is left for the user to name."""
    text = dump_yaml(account.document)
    return NO_MODEL not in text and NO_MACHINE not in text


def save(account: Account, out: Path) -> None:
    """Write the document of `account`; it is never there half-written."""
    if account.document is None:
        raise Refused(f"--out {out}: nothing to write follows from {account.file} ({account.kind})"
                      + (f"; {account.advice}" if account.advice else ""))  # fmt: skip
    if out != STANDARD and out.suffix not in (".yaml", ".yml"):
        raise Refused(f"--out {out}: the name ends in .yaml")
    write_files({out: text_made(account).encode()})


def document(account: Account) -> dict[str, Any]:
    """Everything as plain data, for ``--json``."""
    found: dict[str, Any] = {"file": account.file, "kind": account.kind, "makes": account.makes}
    if account.document is not None:
        found[account.makes] = dict(account.document)
    for how in HOWS:
        found[how] = [
            {"text": entry.text, **({"line": entry.line} if entry.line else {})}
            for entry in account.entries
            if entry.how == how
        ]
    if account.makes == "scenario":
        found["complete"] = complete(account)
    return {**found, "findings": list(account.findings), "advice": account.advice}
