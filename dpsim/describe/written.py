"""Scenarios as the plain data that reads back to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsim.compile.loaders import Loader
from dpsim.compile.strategies import Strategy
from dpsim.core import plugins
from dpsim.core.record import dump
from dpsim.describe.sections import Calibrate
from dpsim.models.section import dump_model

if TYPE_CHECKING:
    from dpsim.describe.scenario import Scenario


def to_data(scenario: Scenario) -> dict[str, Any]:
    """`scenario` as plain data that reads back to an equal one."""
    data: dict[str, Any] = dump(scenario)
    data["model"] = dump_model(scenario.model)
    data["strategy"] = _strategy_data(scenario.strategy)
    if scenario.collective is not None:
        data["collective"] = {
            "backend": plugins.name_of(scenario.collective),
            **dump(scenario.collective),
        }
    if scenario.checkpoint is not None and isinstance(scenario.checkpoint.every, float):
        data["checkpoint"]["every"] = f"{scenario.checkpoint.every!r} s"
    if scenario.recovery is not None:
        data["recovery"] = {"kind": plugins.name_of(scenario.recovery), **dump(scenario.recovery)}
    if isinstance(scenario.input, Loader):
        data["input"] = {"loader": plugins.name_of(scenario.input), **dump(scenario.input)}
    elif scenario.input is not None and scenario.input.rate is not None:
        data["input"]["rate"] = shown_rate(scenario.input.rate)
    if scenario.schedule is not None:
        data["schedule"] = {"kind": plugins.name_of(scenario.schedule), **dump(scenario.schedule)}
    if scenario.calibrate is not None:
        _write_rates(scenario.calibrate, data["calibrate"])
    return data


def shown_rate(rate: tuple[float, str]) -> str:
    """A throughput as a file has it."""
    return f"{rate[0]!r} {rate[1]}/s"


def _strategy_data(strategy: Strategy) -> dict[str, Any]:
    """`strategy`, and the one inside it, as plain data."""
    data = {"kind": plugins.name_of(strategy), **dump(strategy)}
    inner = getattr(strategy, "inner", None)
    if "inner" in data and isinstance(inner, Strategy):
        data["inner"] = _strategy_data(inner)
    return data


def _write_rates(calibrate: Calibrate, data: dict[str, Any]) -> None:
    """Throughputs in `data`, the plain data of `calibrate`, as a file has them."""
    rates = [calibrate.throughput, *(point.throughput for point in calibrate.points or ())]
    for rate, mapping in zip(rates, [data, *data.get("points", ())], strict=True):
        if rate is not None:
            mapping["throughput"] = shown_rate(rate)
