"""Accuracy: measured tables against predictions, scored."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dpsim.core import csvfile, told
from dpsim.core.record import Refused

#: the largest table that is read
MAX_BYTES = 256_000_000

if TYPE_CHECKING:
    from dpsim.accuracy.collectives.validate import ValidatedCollectives
    from dpsim.accuracy.training.validate import ValidatedTraining


def validate(
    table: str | Path, *, calibrate: str | None = None, jobs: int = 1, tell: told.Told = told.nobody
) -> ValidatedTraining | ValidatedCollectives:
    """Predict every measured row of the CSV `table`, and say how far off the predictions are.

    calibrate  smallest, none, or every:K, as ``dpsim validate --calibrate`` has it
    jobs       processes; `tell` is told how many series, or machines, are done

    Raises Refused where the file is no table of training runs or collectives.
    """
    if not isinstance(table, str | Path):
        raise Refused(f"table: a {type(table).__name__} where a CSV file is needed")
    return validated(Path(table), calibrate=calibrate, jobs=jobs, tell=tell)


def validated(
    path: Path, *, calibrate: str | None = None, jobs: int = 1, tell: told.Told = told.nobody
) -> ValidatedTraining | ValidatedCollectives:
    """What dpsim says about the measured rows in `path`, training runs or collectives.

    `tell` is told how many series, or machines, are done.  Raises Refused where the file is no
    such table.
    """
    if _is_training(path):
        from dpsim.accuracy.training.validate import validated_training

        return validated_training(path, calibrate=calibrate or "smallest", jobs=jobs, tell=tell)
    from dpsim.accuracy.collectives.validate import validated_collectives

    return validated_collectives(path, calibrate=calibrate or "none", jobs=jobs, tell=tell)


def _is_training(path: Path) -> bool:
    """Whether the columns are those of training runs; anything without the columns of collectives
    is read as such, so that the complaint tells what they need."""
    names = {column.lower() for column in csvfile.read(path, MAX_BYTES).columns}
    return not names & {"collective", "size_bytes"}
