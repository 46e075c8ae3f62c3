"""Money and energy: line items add up to the cent, are linear in each price, and follow what the
simulation says is used; what is not known is refused by name."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import dpsim
from dpsim.core.record import Refused, build
from dpsim.core.units import dollars
from dpsim.describe.jobs import mix_of
from dpsim.describe.scenario import load, to_data
from dpsim.money.currency import CENT, Money, Priced, rounded
from dpsim.money.items import YEAR, Bill, bill
from dpsim.money.price import Energy, NetworkPrice, Price, Purchase, StoragePrice
from dpsim.money.price_list import read_quote
from dpsim.money.usage import Usage, device_hours, power
from dpsim.planning import candidates
from dpsim.planning.planned import plan
from dpsim.predict.training_run import cost_of, switch_ports, usage_of
from dpsim.report.explained import cost_columns, print_explanation
from dpsim.report.points import run_columns
from dpsim.report.run import print_run

PRICES = Path(__file__).parent / "data" / "prices"
USAGE = Usage(
    devices=16, nodes=2, nics=16, ports=16, busy=0.75, busy_watts=400.0, idle_watts=60.0,
    host_watts=1000.0,
)  # fmt: skip
FULL = {
    "per_device_hour": "2.10 usd/h",
    "network": {"per_nic": "1500 usd", "per_port": "800 usd", "per_node_hour": "0.25 usd/h",
                "years": 4},
    "storage": {"per_hour": "1.5 usd/h", "per_node_hour": "0.1 usd/h", "per_tb_month": "23 usd",
                "size": "50 TB"},
}  # fmt: skip
ENERGY = Energy(price=Money("0.12 usd/kWh"), pue=1.2)


def price(**data: Any) -> Price:
    return build(Price, data, file=True)


def by_name(found: Bill) -> dict[str, Decimal]:
    return {item.name: item.usd_per_hour for item in found.items}


# -- amounts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "per", "number"),
    [
        ("2.10 usd/h", "h", "2.10"),
        ("2.10 usd", "h", "2.10"),
        ("0.12 usd/kWh", "kWh", "0.12"),
        ("120 usd/MWh", "kWh", "0.12"),
        ("250000 USD", "", "250000"),
    ],
)
def test_an_amount_is_the_decimal_that_was_written(text: str, per: str, number: str) -> None:
    found = Priced(per).take(text, file=True)
    assert found.number == Decimal(number)
    assert found == text
    assert found.currency == "usd"


@pytest.mark.parametrize(
    ("text", "per"),
    [("2.10", "h"), (2.1, "h"), ("-1 usd", ""), ("1 usd/kWh", "h"), ("1 usd", "kWh"),
     ("1e999 usd", ""), ("9999999999999 usd", ""), ("1 usd/h", ""), (True, ""), ("nan usd", "")],
)  # fmt: skip
def test_other_texts_are_refused_with_an_example(text: Any, per: str) -> None:
    with pytest.raises(ValueError, match=r"write for example|is more than"):
        Priced(per).take(text, file=True)


def test_another_currency_needs_a_rate() -> None:
    with pytest.raises(Refused, match=r"usd/h, or give rates: \{eur") as caught:
        price(per_device_hour="2 eur/h")
    assert caught.value.path == ("per_device_hour",)
    with pytest.raises(Refused) as caught:
        price(per_device_hour="2 usd/h", storage={"per_hour": "2 gbp/h"}, rates={"eur": "1 usd"})
    assert caught.value.path == ("storage", "per_hour")
    euros = price(per_device_hour="2 eur/h", rates={"EUR": "1.08 usd"})
    assert bill(euros, None, USAGE, None).usd_per_hour == Decimal("34.56")


@given(st.lists(st.decimals(0, 10**6, places=6), min_size=1, max_size=12))
def test_rounded_items_add_up_to_the_rounded_sum(amounts: list[Decimal]) -> None:
    cents = rounded(amounts)
    assert sum(cents) == sum(amounts, Decimal(0)).quantize(CENT)
    assert all(abs(cent - amount) < CENT for cent, amount in zip(cents, amounts, strict=True))


# -- line items -----------------------------------------------------------------------------------


def test_each_line_item_by_hand() -> None:
    found = bill(price(**FULL), ENERGY, USAGE, None)
    items = by_name(found)
    assert items["devices"] == Decimal("33.60")
    bought = Decimal(16 * 1500 + 16 * 800) / (4 * YEAR)
    assert items["network"] == pytest.approx(bought + Decimal("0.50"), rel=Decimal("1e-25"))
    assert items["storage"] == pytest.approx(
        Decimal("1.5") + Decimal("0.2") + Decimal(50 * 23) / 730, rel=Decimal("1e-25")
    )
    # 16 x (0.75 x 400 + 0.25 x 60) W, 2 x 1000 W, and a fifth of both
    assert items["device energy"] == Decimal("5.040") * Decimal("0.12")
    assert items["host energy"] == Decimal("2") * Decimal("0.12")
    assert items["cooling"] == Decimal("1.408") * Decimal("0.12")
    assert found.usd_per_hour == pytest.approx(sum(items.values()), rel=Decimal("1e-25"))


def test_what_is_bought_is_paid_in_full_over_its_years() -> None:
    bought = price(purchase={"per_node": "250000 usd", "years": 4, "utilisation": "80 %"})
    found = bill(bought, None, USAGE, None)
    assert found.usd_per_hour == pytest.approx(
        Decimal(500000) / (4 * YEAR * Decimal("0.8")), rel=Decimal("1e-25")
    )
    assert float(found.usd_per_year) == pytest.approx(125000)
    each = price(purchase={"per_device": "30000 usd", "years": 4})
    assert float(bill(each, None, USAGE, None).usd_per_year) == pytest.approx(120000)


HOURLY = st.decimals("0.01", "1000", places=2)


@given(st.sampled_from(["devices", "network", "storage", "energy"]), HOURLY, HOURLY)
def test_cost_is_linear_in_each_price(which: str, first: Decimal, second: Decimal) -> None:
    """f(a) + f(b) = f(a + b) + f(0), exactly, whichever price is varied."""

    def total(amount: Decimal) -> Decimal:
        data: dict[str, Any] = json.loads(json.dumps(FULL))
        energy = ENERGY
        if which == "devices":
            data["per_device_hour"] = f"{amount} usd/h"
        elif which == "network":
            data["network"]["per_node_hour"] = f"{amount} usd/h"
        elif which == "storage":
            data["storage"]["per_hour"] = f"{amount} usd/h"
        else:
            energy = replace(ENERGY, price=Money(f"{amount} usd/kWh"))
        return bill(price(**data), energy, USAGE, None).usd_per_hour

    left, right = total(first) + total(second), total(first + second) + total(Decimal(0))
    assert abs(left - right) < Decimal("1e-20")


@given(st.integers(1, 10**6), st.integers(0, 10**8))
def test_device_hours_are_devices_times_time(devices: int, seconds: int) -> None:
    assert device_hours(devices, seconds) * 3600 == pytest.approx(
        Decimal(devices) * seconds, rel=Decimal("1e-25")
    )
    assert bill(price(per_device_hour="3 usd/h"), None, Usage(devices), None).over(
        seconds
    ) == pytest.approx(3 * device_hours(devices, seconds), rel=Decimal("1e-25"))


@given(st.floats(1e-6, 1e8), st.floats(0, 1), st.integers(1, 4096), st.floats(1, 3), HOURLY, HOURLY)
def test_line_items_sum_to_the_cent(
    seconds: float, busy: float, devices: int, pue: float, rent: Decimal, kwh: Decimal
) -> None:
    usage = replace(USAGE, busy=busy, devices=devices)
    data = {**FULL, "per_device_hour": f"{rent} usd/h"}
    found = bill(price(**data), Energy(price=Money(f"{kwh} usd/kWh"), pue=pue), usage, None)
    cents = found.cents(seconds)
    assert sum(cents) == found.over(seconds).quantize(CENT)
    assert sum(found.shares(seconds)) == pytest.approx(found.over(seconds), rel=Decimal("1e-25"))


# -- power ----------------------------------------------------------------------------------------


@given(st.floats(0, 1))
def test_power_lies_between_idle_and_busy(busy: float) -> None:
    found = power(ENERGY, replace(USAGE, busy=busy))
    assert 16 * 60 <= found.devices <= 16 * 400
    assert found.hosts == 2000
    assert float(found.total) == pytest.approx(1.2 * float(found.devices + found.hosts))
    assert float(found.kwh(3600)) == pytest.approx(float(found.total) / 1000)


@pytest.mark.parametrize("unknown", ["busy_watts", "idle_watts", "host_watts"])
def test_a_power_that_is_not_known_is_no_zero(unknown: str) -> None:
    with pytest.raises(Refused, match="is not known of this machine; give energy") as caught:
        power(ENERGY, replace(USAGE, **{unknown: None}))
    assert caught.value.path[0] == "energy"


@pytest.mark.parametrize(
    ("energy", "key"),
    [(Energy(idle_power=500.0), "idle_power"), (Energy(device_power=400.0), "device_power")],
)
def test_a_device_that_draws_more_with_nothing_to_do_is_refused(energy: Energy, key: str) -> None:
    with pytest.raises(Refused, match="draws no more with nothing to do: 500 W idle") as caught:
        power(energy, replace(USAGE, idle_watts=500.0))
    assert caught.value.path == ("energy", key)


# -- price lists ----------------------------------------------------------------------------------

DATED = {"as_of": "2023-05-01", "source": "the provider's page"}


@pytest.mark.parametrize(
    ("file", "row", "devices", "usd"),
    [
        ("skypilot-lambda.csv", "gpu.8x.a100", 8, "8.80"),
        ("skypilot-lambda.csv", "gpu.1x.rtx6000", 1, "0.50"),
        ("skypilot-oci-example.csv", "VM.GPU.A10.2", 2, "6"),
    ],
)
def test_skypilot_catalogues_are_read(file: str, row: str, devices: int, usd: str) -> None:
    quote = read_quote(PRICES / file, price(file=file, row=row, **DATED))
    assert (quote.devices, quote.usd_per_hour) == (devices, Decimal(usd))
    assert (quote.as_of, quote.source) == ("2023-05-01", "the provider's page")


def test_spot_prices_are_a_column_of_their_own() -> None:
    file = "skypilot-oci-example.csv"
    spot = price(file=file, row="VM.GPU.A10.2", spot=True, **DATED)
    assert read_quote(PRICES / file, spot).usd_per_hour == 3
    with pytest.raises(Refused, match="has no price for spot instances"):
        read_quote(PRICES / file, replace(spot, row="BM.GPU.A10.4"))


@pytest.mark.parametrize(
    ("data", "path", "message"),
    [
        ({"row": "gpu.8x.a10"}, ("price", "row"), "did you mean 'gpu.8x.a100'"),
        ({"row": "gpu.8x.a100", "region": "x"}, ("price", "region"), "it is in us-tx-1"),
        ({"row": "gpu.8x.a100", "as_of": None}, ("price", "as_of"), "needs a date and a source"),
        ({"row": "gpu.8x.a100", "source": None}, ("price", "source"), "needs a date and a source"),
    ],
)
def test_what_a_price_list_lacks_is_named(
    data: dict[str, Any], path: tuple[str, ...], message: str
) -> None:
    wanted = {"file": "skypilot-lambda.csv", **DATED, **data}
    wanted = {key: value for key, value in wanted.items() if value is not None}
    with pytest.raises(Refused, match=message) as caught:
        read_quote(PRICES / "skypilot-lambda.csv", price(**wanted))
    assert caught.value.path == path


def test_cpu_instances_are_refused() -> None:
    file = "skypilot-oci-example.csv"
    with pytest.raises(Refused, match="accelerators: nothing where a number is needed"):
        read_quote(PRICES / file, price(file=file, row="VM.Standard.E4.Flex", **DATED))


def test_a_list_of_ones_own_has_its_dates_inside(tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text(
        "instance,devices,usd_per_hour,as_of,source,region\n"
        "big,8,20.5,2026-01-31,offer 17,north\nbig,8,22,2026-01-31,offer 17,south\n"
    )
    wanted = price(file="prices.csv", row="big", region="south")
    quote = read_quote(file, wanted)
    assert (quote.usd_per_hour, quote.as_of, quote.source) == (22, "2026-01-31", "offer 17")
    with pytest.raises(Refused, match="several prices; name a region: north, south"):
        read_quote(file, replace(wanted, region=None))
    file.write_text("name,price\nbig,3\n")
    with pytest.raises(Refused, match="has no column instance"):
        read_quote(file, wanted)


# -- the section of the scenario ------------------------------------------------------------------

EACH = {"dgx-a100": {"per_node_hour": "1 usd"}}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "exactly one of"),
        ({"per_device_hour": "1 usd", "per_node_hour": "1 usd"}, "exactly one of"),
        ({"file": "x.csv"}, "belong together"),
        ({"per_device_hour": "1 usd", "spot": True}, "belong to a price list"),
        ({"per_device_hour": "1 usd", "as_of": "May"}, "is no date"),
        ({"per_device_hour": "1 usd", "network": {"per_nic": "1 usd"}}, "how many years"),
        ({"per_device_hour": "1 usd", "network": {}}, "needs per_nic"),
        ({"per_device_hour": "1 usd", "storage": {}}, "needs per_hour"),
        ({"per_device_hour": "1 usd", "storage": {"size": "1 TB", "per_hour": "1 usd"}}, "a size"),
        ({"per_device_hour": "1 usd", "rates": {"eur": "1 gbp"}}, "rates are in usd"),
        ({"purchase": {"years": 4}}, "per_node or per_device"),
        ({"purchase": {"per_node": "1 usd"}}, "is missing"),
        ({"purchase": {"per_node": "1 usd", "years": 0}}, "not in 0"),
        ({"machines": {}}, "machines: has the price of no machine"),
        ({"machines": {"dgx-a100": {}}}, "machines.dgx-a100: needs exactly one of"),
        ({"machines": EACH, "per_node_hour": "1 usd"}, "^per_node_hour: machines has what each"),
        ({"machines": EACH, "spot": True}, "belong to a price list"),
        ({"machines": EACH, "as_of": "May"}, "^as_of: .*is no date"),
        ({"machines": {"dgx-a100": {"row": "a"}}}, "machines: is taken of a price list: give file"),
        ({"machines": EACH, "file": "x.csv"}, "file: needs a row of a machine"),
        ({"machines": EACH, "network": {"per_nic": "1 usd"}}, "^network.years: .*how many years"),
        ({"machines": {"dgx-a100": {"per_node_hour": "1 gbp"}}}, "dgx-a100.per_node_hour: .*rates"),
    ],
)
def test_prices_that_say_too_little_or_too_much_are_refused(
    data: dict[str, Any], message: str
) -> None:
    with pytest.raises(Refused, match=message):
        price(**data)


BOX: dict[str, Any] = {
    "model": {"name": "resnet50"},
    "cluster": {"machine": "dgx-a100", "nodes": 1},
    "strategy": {"kind": "ddp"},
    "batch": {"per_device": 32},
    "precision": {"compute": "bf16"},
    "price": {"per_node_hour": "20 usd/h", "network": {"per_node_hour": "1 usd/h"}},
    "energy": {"price": "0.12 usd/kWh", "pue": 1.2},
    "training": {"samples": 1.0e6},
    "sweep": {"cluster.nodes": [1, 2]},
}


def predicted(**changes: Any) -> Any:
    data = {**json.loads(json.dumps(BOX)), **changes}
    return dpsim.predict(load({k: v for k, v in data.items() if v is not None}, PRICES, "box"))


def test_a_point_has_its_line_items_and_they_add_up() -> None:
    found = predicted()
    for point in found.points:
        cost = point["cost"]
        for span in ("hour", "step", "run", "year"):
            whole = sum(item[f"usd_per_{span}"] for item in cost["items"])
            assert whole == pytest.approx(cost[f"usd_per_{span}"], rel=1e-12)
        assert point["cost_usd"] == cost["usd_per_run"]
        assert point["cost_usd_per_hour"] == cost["usd_per_hour"]
        hours = point["time_to_train_s"] / 3600
        assert point["cost_usd"] == pytest.approx(cost["usd_per_hour"] * hours)
        assert point["device_hours"] == pytest.approx(point["ranks"] * hours)
        assert cost["usd_per_sample"] * point["global_batch"] == pytest.approx(cost["usd_per_step"])
        assert point["cost_low_usd"] < point["cost_usd"] < point["cost_high_usd"]
        assert point["energy_kwh"] == pytest.approx(point["power_w"] * hours / 1000)
        assert [item["name"] for item in cost["items"]] == [
            "devices", "network", "device energy", "host energy", "cooling",
        ]  # fmt: skip
    assert found.points[1]["cost"]["items"][0]["usd_per_hour"] == 40.0


def test_devices_draw_by_how_much_they_compute() -> None:
    point = predicted(sweep=None).points[0]
    busy = point["compute_s"] / point["step_time_s"]
    devices = 8 * (busy * 400 + (1 - busy) * 59)
    assert point["power_w"] == pytest.approx(1.2 * (devices + 3300))
    given = predicted(sweep=None, energy={"device_power": "300 W", "host_power": "0 W"}).points[0]
    assert given["power_w"] == pytest.approx(8 * (busy * 300 + (1 - busy) * 59))
    assert "energy_kwh" in given
    assert [item["name"] for item in given["cost"]["items"]] == ["devices", "network"]


def test_energy_of_a_machine_whose_power_is_not_known_is_refused() -> None:
    with pytest.raises(Refused, match=r"give energy.idle_power and energy.host_power"):
        predicted(cluster={"machine": "two-rtx3090", "nodes": 1}, sweep=None)


def test_without_training_there_is_no_run_to_pay_for() -> None:
    point = predicted(training=None, sweep=None).points[0]
    assert point["cost"]["usd_per_run"] is None
    assert not {"cost_usd", "time_to_train_s", "energy_kwh"} & set(point)
    headers, rows = run_columns(predicted(training=None, sweep=None).points)
    assert rows[0][headers.index("cost")].endswith("usd/h")


def test_nothing_is_added_where_nothing_is_asked_for() -> None:
    point = predicted(training=None, price=None, energy=None, sweep=None).points[0]
    assert point["cost_usd_per_hour"] is None
    assert not {"cost", "power_w", "steps"} & set(point)


def test_an_instance_must_have_the_devices_of_a_node() -> None:
    listed = {"file": "skypilot-lambda.csv", "row": "gpu.8x.a100", **DATED}
    found = predicted(price=listed)
    assert [p["cost"]["items"][0]["usd_per_hour"] for p in found.points] == [8.8, 17.6]
    assert found.points[0]["cost"]["as_of"] == "2023-05-01"
    assert not any(w.startswith("price:") for w in found.document["warnings"])
    with pytest.raises(Refused, match="has 4 accelerators, a node of the scenario 8"):
        predicted(price={**listed, "row": "gpu.4x.a100"})
    other = predicted(price={**listed, "row": "gpu.8x.v100"})
    assert any("has V100, the machine A100" in w for w in other.document["warnings"])


def test_each_machine_has_its_price() -> None:
    """Two nodes of eight: by the node, by the device and as a list has them."""
    machines = {
        "dgx-a100": {"row": "gpu.8x.a100"},
        "dgx-h100": {"per_device_hour": "4 usd/h"},
        "dgx-h200": {"per_node_hour": "50 usd/h"},
    }
    own = {"file": "skypilot-lambda.csv", **DATED, "machines": machines}
    sweep = {"cluster.machine": [*machines, "dgx-b200"]}
    found = predicted(price=own, sweep=sweep, energy=None)
    rents = [point["cost"]["items"][0]["usd_per_hour"] for point in found.computed]
    assert rents == [8.8, 32.0, 50.0]
    assert "has no price of dgx-b200; it has dgx-a100, dgx-h100" in found.points[3].error
    turned = predicted(price=own, sweep={"cluster.machine": ["dgx-b200", "dgx-a100"]}, energy=None)
    assert [bool(getattr(point, "error", "")) for point in turned.points] == [True, False]
    with pytest.raises(Refused, match=r"price\.machines: has no price of dgx-b200"):
        predicted(price=own, sweep={"cluster.machine": ["dgx-b200"]}, energy=None)
    again = load({**to_data(found.loaded.scenario)}, PRICES, "box").scenario
    assert again.price == found.loaded.scenario.price


def test_one_price_of_several_machines_is_told() -> None:
    """In a sweep, a grid, a plan and a comparison; of one machine, and where prices go over them
    too, nothing is said."""
    data = {**BOX, "sweep": None, "energy": None}
    scenario = load({key: value for key, value in data.items() if value}, PRICES, "box")
    both = "cluster.machine=dgx-a100,dgx-h100"
    planned = plan(scenario, minimise="cost", vary=both)
    swept = predicted(sweep={"cluster.machine": ["dgx-a100", "dgx-h100"]})
    compared = candidates.varied([mix_of(scenario.data, PRICES, "box")], ["box"], [both])
    told = [planned.document["warnings"], swept.document["warnings"], compared[0].notes]
    assert all(any("all machines are paid for alike" in t for t in one) for one in told)
    beside = predicted(sweep=[{"cluster.nodes": 2}, {"cluster.machine": "dgx-h100"}])
    assert any("all machines are paid for alike" in t for t in beside.document["warnings"])
    apart = [
        {"cluster.machine": machine, "price.per_node_hour": f"{usd} usd/h"}
        for machine, usd in (("dgx-a100", 14), ("dgx-h100", 24))
    ]
    for quiet in (predicted(sweep=apart), predicted(sweep={"cluster.machine": ["dgx-a100"]})):
        assert not any("paid for alike" in text for text in quiet.document["warnings"])


def test_ports_are_counted_on_the_graph() -> None:
    """dgx-a100: 8 NICs a node, each on the leaf of its rail; a leaf of two NICs has two uplinks."""
    found = predicted(price={**BOX["price"], "network": {"per_port": "100 usd", "years": 1}})
    assert [switch_ports(case) for case in (one.case for one in found.outcomes)] == [0, 16 + 2 * 16]
    assert usage_of(found.outcomes[1].case, 1.0).ports == 48
    bought = cost_of(found.outcomes[1].case, found.points[1])
    assert bought is not None
    assert by_name(bought)["network"] == pytest.approx(Decimal(4800) / YEAR, rel=Decimal("1e-25"))


def test_a_scenario_with_money_writes_itself_back() -> None:
    scenario = load(BOX, PRICES, "box").scenario
    again = load({**to_data(scenario)}, PRICES, "box").scenario
    assert (again.price, again.energy, again.training) == (
        scenario.price, scenario.energy, scenario.training,
    )  # fmt: skip


def test_tables_show_time_money_and_energy() -> None:
    found = predicted()
    headers, rows = run_columns(found.points)
    assert {"to train", "cost", "energy"} <= set(headers)
    assert rows[0][headers.index("cost")] == f"{found.points[0]['cost_usd']:,.2f} usd"
    names, lines = cost_columns(found.points[0].cost)
    assert names == ["item", "usd/h", "usd/run", "usd/year", "basis"]
    for place in (1, 2, 3):
        column = [Decimal(line[place].replace(",", "")) for line in lines]
        assert sum(column[:-1]) == column[-1]
        assert all(("." in line[place]) == (column[-1] < 1000) for line in lines)
    out = io.StringIO()
    console = Console(file=out, width=200)
    print_run(found, console, None)
    print_explanation(found.explain(), console)
    text = out.getvalue()
    assert "Training takes" in text
    last = found.points[-1]
    low, high = (dollars(last[f"cost_{end}_usd"]).removesuffix(" usd") for end in ("low", "high"))
    told = " ".join(text.split())
    assert told.count(f"and costs {dollars(last['cost_usd'])} ({low}–{high} usd).") == 1
    assert "as its steps')" in told
    assert "cooling" in text
    assert "1 node x 20 usd/h" in text


def test_records_of_the_sections_are_plain() -> None:
    """What the functions take can be made in Python as well as read from a file."""
    made = Price(
        purchase=Purchase(per_node=Money("1000 usd"), years=1),
        network=NetworkPrice(per_node_hour=Money("1 usd/h")),
        storage=StoragePrice(per_hour=Money("1 usd/h")),
    )
    assert float(bill(made, None, USAGE, None).usd_per_hour) == pytest.approx(2000 / 8760 + 3)
