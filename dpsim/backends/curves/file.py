"""The calibration file: what `dpsim calibrate` found, as scenarios use it.

A file names what it was made from (file names and SHA-256), holds measured curves, step times and
layer times with their errors, and the warnings that came with them.  A digest of all that tells
whether it is as it was written; numbers of one's own have none, and are made from nothing.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from dpsim.backends.curves import MeasuredCurve, timing_text
from dpsim.core import jsonfile, units, yamlfile
from dpsim.core.files import stamp
from dpsim.core.places import below
from dpsim.core.record import Check, Count, Refused, Text, build, dump, record

Share = Annotated[float, units.Unit("1", high=1e6)]


@record
class Source:
    """A file that was read: its name without folder, and the SHA-256 of its bytes."""

    file: Text
    sha256: Text


@record
class MeasuredSteps:
    """Step times of one rank count and batch.

    n        how many steps; `mean` and `spread` (standard deviation) of them [s]
    jitter   their coefficient of variation [1], with its bootstrap standard error
    """

    ranks: Count | None = None
    batch: Annotated[int, Check(1, 10**7)] | None = None
    n: Count
    mean: units.Seconds
    spread: units.Seconds
    jitter: Share
    jitter_error: Share


@record
class MeasuredLayer:
    """Time of one layer or operator per step, forward and backward [s]."""

    name: Text
    forward: units.Seconds
    backward: units.Seconds


@record
class Calibration:
    """Everything that a calibration file says."""

    schema_version: Literal[1]
    title: Text
    made_from: tuple[Source, ...]
    device: Text | None = None
    curves: tuple[MeasuredCurve, ...] = ()
    steps: tuple[MeasuredSteps, ...] = ()
    layers: tuple[MeasuredLayer, ...] = ()
    overlap: Share | None = None
    warnings: tuple[Text, ...] = ()

    def __post_init__(self) -> None:
        seen: set[tuple[str, int, int | None]] = set()
        for k, curve in enumerate(self.curves):
            group = (curve.operation, curve.ranks, curve.nodes)
            if group in seen:
                raise Refused("is there twice; one curve per operation and group", ("curves", k))
            seen.add(group)

    @property
    def jitter(self) -> MeasuredSteps | None:
        """The step times whose variation is that of single ranks best: those of fewest ranks."""
        several = [steps for steps in self.steps if steps.n > 2]
        return min(several, key=lambda steps: steps.ranks or 1, default=None)


def write(calibration: Calibration) -> str:
    """`calibration` as the text of a file."""
    data = dump(calibration)
    for plain, curve in zip(data.get("curves", []), calibration.curves, strict=True):
        plain["points"] = [timing_text(point) for point in curve.points]
    plain, _ = yamlfile.loads(yamlfile.dump_yaml(data), "")
    return yamlfile.dump_yaml({**data, "digest": jsonfile.digest(plain)})


def _check_digest(data: dict[str, Any], plain: dict[str, Any]) -> None:
    """Refused where the file of `data`, `plain` without its digest, isn't what calibrate wrote."""
    given = data.get("digest")
    if given != jsonfile.digest(plain) and (given is not None or plain.get("made_from")):
        raise Refused(
            "the file is not as dpsim calibrate wrote it; calibrate again, or, for numbers of your "
            "own, write made_from: [] and no digest",
            ("digest",),
        )


def load(path: Path) -> Calibration:
    """The calibration file at `path`; FileRefused where it is not one."""
    data, lines = yamlfile.load(path, path.name)
    try:
        if isinstance(data, dict) and data.get("schema_version", 1) != 1:
            raise Refused("only version 1 is known", ("schema_version",))
        plain = {k: v for k, v in data.items() if k != "digest"} if isinstance(data, dict) else data
        calibration = build(Calibration, plain, file=True)
        _check_digest(data, plain)
        return calibration
    except Refused as error:
        raise yamlfile.located(error, path.name, lines) from None


def find(name: str, base: Path) -> Calibration:
    """What a scenario in `base` means by `name`: a file below it, or a bundled calibration."""
    path = below(base, name, "calibration")
    bundled = folder() / f"{name}.yaml"
    if not path.is_file() and "/" not in name and bundled.is_file():
        path = bundled
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in folder().glob("*.yaml"))) or "none"
        raise Refused(
            f"no file {name[:200]!r} beside the scenario; bundled: {known}", ("calibration",)
        )
    return _cached(path, stamp(path))


@lru_cache(maxsize=16)
def _cached(path: Path, _: Any) -> Calibration:
    return load(path)


def folder() -> Path:
    """Where the bundled calibrations are."""
    return Path(str(resources.files("dpsim"))) / "backends" / "curves" / "bundled"
