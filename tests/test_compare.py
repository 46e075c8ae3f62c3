"""`dpsim compare`: mixes of jobs, shared uncertainty, regret, break-even prices, what to measure.

Closed forms are those of lognormal objectives: the probability that one is below the other is
normal, the expected regret is an exchange option (Margrabe, Journal of Finance 33:177, 1978).
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

import dpsim
from dpsim.core.places import data_folder
from dpsim.core.record import Refused
from dpsim.describe.jobs import read_mix, schema, sources
from dpsim.models.memory import FITTING
from dpsim.planning import measure_next
from dpsim.planning.candidates import Candidate, asked, played
from dpsim.planning.causes import Cause, Factor, numbers
from dpsim.planning.compare import Comparison, Term, comparison
from dpsim.planning.compared import decided, document
from dpsim.planning.equal_work import EqualWork
from dpsim.predict.drawn import Z90
from dpsim.predict.programs import apart, ratio_interval
from dpsim.predict.widths import compute_range
from dpsim.report.compare import (
    FILES,
    headline,
    make_figure,
    print_comparison,
    sentences,
    write_comparison,
)
from dpsim.report.pages.compare import page

PHI = NormalDist().cdf
LAYER = "{name: a, parameters: 1000, forward: 0 s, backward: %s}"
IDEAL = "collective: {backend: ideal, latency: 1 ms, bandwidth: 10 GB/s}\n"


def toy(backward: str, ranks: int = 2, more: str = "") -> str:
    """A worked toy whose step takes `backward`, 1 ms of latency and the bytes' 0.4 us."""
    return (
        f"model: {{layers: [{LAYER % backward}]}}\n"
        f"cluster: {{ranks: {ranks}}}\n"
        f"{IDEAL}strategy: {{kind: ddp}}\noptimizer: {{kind: none}}\n{more}"
    )


def mix(first: str, second: str, weights: tuple[str, str], more: str = "", each: str = "") -> str:
    """Two toy jobs on two ranks."""
    jobs = "".join(
        f"  - name: {name}\n    weight: {weight}\n    model: {{layers: [{LAYER % backward}]}}\n"
        f"    strategy: {{kind: ddp}}\n{each}"
        for name, backward, weight in (("one", first, weights[0]), ("two", second, weights[1]))
    )
    return f"cluster: {{ranks: 2}}\n{IDEAL}optimizer: {{kind: none}}\n{more}jobs:\n{jobs}"


def write(folder: Path, **files: str) -> list[Path]:
    """Scenario files by name."""
    found = []
    for name, text in files.items():
        found.append(folder / f"{name}.yaml")
        found[-1].write_text(text)
    return found


def answer(*names: Any, by: Any = None, seed: int = 0, vary: Any = (), **options: Any) -> Any:
    """The document of a comparison, with its measurements."""
    found = comparison(
        [
            played(each, options.get("ranks"))
            for each in asked(names, options.get("sets", ()), vary)
        ],
        by=by,
        seed=seed,
    )
    text = document(found)
    text["measurements"] = measure_next.document(found)
    text["measure_next"] = next(iter(text["measurements"]), None)
    return text


FREE = "collective: {backend: free}\n"
TRAINED = "    training: {samples: 1000, largest_batch: 1000}\n"
STEP_1, STEP_2 = 0.0110004, 0.0210004  # 10 or 20 ms of backward, 1 ms, 4 kB at 10 GB/s


# -- jobs -----------------------------------------------------------------------------------------


def test_a_job_of_a_mix_is_predicted_as_it_would_be_alone(tmp_path: Path) -> None:
    (path,) = write(tmp_path, mix=mix("10 ms", "20 ms", ("1", "1")))
    (alone,) = write(tmp_path, alone=toy("10 ms"))
    jobs = answer(path)["candidates"][0]["jobs"]
    point = dpsim.predict(dpsim.read(alone)).points[0]
    for key in ("step_time_s", "bytes_sent_per_rank", "memory_bytes", "exposed_communication_s"):
        assert jobs[0][key] == point[key]
    assert [job["step_time_s"] for job in jobs] == pytest.approx([STEP_1, STEP_2], rel=1e-12)


def test_weights_are_runs_where_training_is_asked_for(tmp_path: Path) -> None:
    """3 runs of 1,000 steps and 2 of 1,000, one after the other."""
    training = "    training: {samples: 2000}\n"
    (path,) = write(tmp_path, mix=mix("10 ms", "20 ms", ("3", "2"), each=training))
    found = answer(path)["candidates"][0]
    seconds = 3 * 1000 * STEP_1 + 2 * 1000 * STEP_2
    assert found["days"] * 86400 == pytest.approx(seconds, rel=1e-12)
    assert found["step_time_s"] == pytest.approx(seconds / 5000, rel=1e-12)
    share = 3 * 1000 * STEP_1 / seconds
    assert [job["share_of_time"] for job in found["jobs"]] == pytest.approx([share, 1 - share])


def test_weights_are_shares_of_the_first_clusters_hours_without_training(tmp_path: Path) -> None:
    """Three quarters of an hour of job one and a quarter of job two take so long elsewhere."""
    a, b = write(
        tmp_path,
        a=mix("10 ms", "20 ms", ("75 %", "25 %")),
        b=mix("20 ms", "10 ms", ("3", "1"))
        .replace("weight: 3", "weight: 0.75")
        .replace("weight: 1\n", "weight: 0.25\n"),
    )
    first, second = answer(a, b)["candidates"]
    assert first["objective"] == pytest.approx(3600.0, rel=1e-9)
    assert [job["share_of_time"] for job in first["jobs"]] == pytest.approx([0.75, 0.25])
    expected = 3600 * (0.75 * STEP_2 / STEP_1 + 0.25 * STEP_1 / STEP_2)
    assert second["objective"] == pytest.approx(expected, rel=1e-9)
    assert first["days"] is None


def test_different_batches_are_compared_by_samples(tmp_path: Path) -> None:
    """Twice the ranks do twice the samples in a step that is as long: half the time."""
    a, b = write(tmp_path, a=toy("10 ms", 2), b=toy("10 ms", 4))
    first, second = answer(a, b)["candidates"]
    ratio = second["objective"] / first["objective"]
    assert ratio == pytest.approx(second["step_time_s"] / first["step_time_s"] / 2, rel=1e-9)


def test_sequences_of_different_lengths_are_compared_by_tokens(tmp_path: Path) -> None:
    text = big().replace("training: {samples: 1e6}\n", "")
    a, b = write(tmp_path, a=text, b=text.replace("length: 512", "length: 256"))
    first, second = answer(a, b, by="time")["candidates"]
    steps = [found["jobs"][0]["steps"] for found in (first, second)]
    assert steps[1] == pytest.approx(2 * steps[0])
    (images,) = write(
        tmp_path, images=text.replace("huggingface: gpt2-large.json, sequence_length: 512",
                                      "name: resnet50")
    )  # fmt: skip
    with pytest.raises(Refused, match="images and gpt2-large from sequences"):
        answer(a, images)


def test_what_is_outside_is_shared_and_a_jobs_own_section_counts(tmp_path: Path) -> None:
    text = mix("10 ms", "20 ms", ("1", "1"), more="batch: {per_device: 2}\n").replace(
        "  - name: two\n", "  - name: two\n    batch: {per_device: 5}\n"
    )
    (path,) = write(tmp_path, mix=text)
    assert [job.loaded.scenario.batch.per_device for job in read_mix(path).jobs] == [2, 5]
    sets = ["jobs[1].batch.per_device=7", "cluster.ranks=4"]
    jobs = [job.loaded.scenario for job in read_mix(path, sets).jobs]
    assert [job.batch.per_device for job in jobs] == [2, 7]
    assert {job.cluster.ranks for job in jobs} == {4}


def test_jobs_may_lie_in_a_file_below_the_folder(tmp_path: Path) -> None:
    whole = mix("10 ms", "20 ms", ("1", "1"))
    head, _, jobs = whole.partition("jobs:\n")
    (inside,) = write(tmp_path, inside=whole)
    (path,) = write(tmp_path, outside=f"{head}jobs: common/jobs.yaml\n")
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "jobs.yaml").write_text(
        "\n".join(line.removeprefix("  ") for line in jobs.splitlines())
    )
    a, b = (read_mix(p).jobs for p in (inside, path))
    assert [job.loaded.scenario.model for job in a] == [job.loaded.scenario.model for job in b]
    (tmp_path / "common" / "jobs.yaml").write_text("- name: one\n  weigth: 2\n")
    with pytest.raises(Refused, match=r"common/jobs.yaml:2: .*did you mean 'weight'"):
        read_mix(path)
    path.write_text(f"{head}jobs: ../jobs.yaml\n")
    with pytest.raises(Refused, match="outside the scenario's own folder"):
        read_mix(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("weight: 1", "weight: 0"), r"mix.yaml:\d+: jobs\[0\].weight: 0 is not in"),
        (("name: two", "name: one"), r"jobs\[1\].name: there are two jobs called 'one'"),
        (("kind: ddp", "kind: dpp"), r"mix.yaml:\d+: jobs\[0\].strategy.kind: .*'ddp'"),
        (("    strategy", "    cluster: {ranks: 1}\n    strategy"), "belongs to all jobs"),
        (("    strategy: {kind: ddp}\n", ""), r"jobs\[0\].strategy: is missing"),
        (("optimizer", "measured: x.csv\noptimizer"), "single job"),
        (("cluster: {ranks: 2}", "cluster: {ranks: 0}"), "mix.yaml:1: cluster.ranks: 0 is not in"),
        (("jobs:", "jobs: []\nx:"), "needs a list of 1"),
    ],
)
def test_what_is_wrong_with_a_job_is_refused_with_its_line(
    tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    (path,) = write(tmp_path, mix=mix("10 ms", "20 ms", ("1", "1")).replace(*change))
    with pytest.raises(Refused, match=said):
        read_mix(path)


def test_other_commands_refuse_a_mix_and_name_compare(tmp_path: Path) -> None:
    (path,) = write(tmp_path, mix=mix("10 ms", "20 ms", ("1", "1")))
    with pytest.raises(Refused, match=r"mix.yaml:\d+: jobs: .*dpsim compare"):
        dpsim.read(path)


def test_candidates_of_a_mix_need_the_same_jobs_and_weights(tmp_path: Path) -> None:
    a, b, c = write(
        tmp_path,
        a=mix("10 ms", "20 ms", ("1", "1")),
        b=mix("10 ms", "20 ms", ("1", "2")),
        c=toy("10 ms", more="training: {samples: 1000}\n"),
    )
    for other in (b, c):
        with pytest.raises(Refused, match="same jobs with the same weights"):
            answer(a, other)
    (d,) = write(tmp_path, d=toy("10 ms"))
    with pytest.raises(Refused, match="no `training`"):
        answer(c, d)


def test_the_schema_knows_both_forms() -> None:
    whole = schema()
    assert whole["anyOf"] == [{"required": ["model", "strategy"]}, {"required": ["jobs"]}]
    entry = whole["properties"]["jobs"]["anyOf"][0]["items"]
    assert {"name", "weight", "model", "strategy", "training"} <= set(entry["properties"])
    assert "cluster" not in entry["properties"]


# -- candidates -----------------------------------------------------------------------------------


def test_a_folder_stands_for_the_files_directly_in_it(tmp_path: Path) -> None:
    write(tmp_path, b=toy("20 ms"), a=toy("10 ms"))
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "c.yaml").write_text("nothing: 1\n")
    assert [Path(p).name for p in sources(tmp_path)] == ["a.yaml", "b.yaml"]
    assert [c["name"] for c in answer(tmp_path)["candidates"]] == ["a", "b"]
    with pytest.raises(Refused, match=r"no \*.yaml directly in it"):
        sources(_empty(tmp_path))


def _empty(place: Path) -> Path:
    (place / "empty").mkdir()
    return place / "empty"


def test_a_sweep_is_compared_at_its_last_point_or_where_asked(tmp_path: Path) -> None:
    sweep = "sweep: {cluster.ranks: [1, 2, 8]}\n"
    (path,) = write(tmp_path, a=toy("10 ms", more=sweep))
    assert answer(path)["candidates"][0]["ranks"] == 8
    assert answer(path, ranks=2)["candidates"][0]["ranks"] == 2
    assert answer(path, ranks=16)["candidates"][0]["ranks"] == 16


def test_efficiency_is_relative_to_one_rank_alone(tmp_path: Path) -> None:
    sweep = "sweep: {cluster.ranks: [1, 8]}\n"
    (path,) = write(tmp_path, a=toy("10 ms", more=sweep))
    found = answer(path)["candidates"][0]
    point = dpsim.predict(dpsim.read(path)).points[-1]
    assert found["efficiency"] == pytest.approx(point["efficiency"], rel=1e-12)
    assert found["efficiency"] < 1


def test_a_candidate_without_a_number_stays_and_is_not_chosen(tmp_path: Path) -> None:
    """Three samples do not go round eight ranks."""
    fine, broken = write(
        tmp_path,
        fine=toy("10 ms", more="batch: {global: 8}\n"),
        broken=toy("1 ms", 8, more="batch: {global: 3}\n"),
    )
    found = answer(broken, fine)
    assert found["recommendation"] == "fine"
    assert "without a sample" in found["candidates"][0]["error"]
    assert found["candidates"][0]["ranks"] == 8
    assert found["candidates"][0]["probability_best"] == 0
    assert any("no number" in text for text in found["warnings"])


def test_steps_that_take_no_time_have_no_number(tmp_path: Path) -> None:
    free = mix("0 s", "0 s", ("1", "3"), "", TRAINED).replace(IDEAL, FREE)
    paths = write(tmp_path, free=free, slow=mix("10 ms", "20 ms", ("1", "3"), "", TRAINED))
    found = answer(*paths, by="time")
    assert found["recommendation"] == "slow"
    assert "takes no time" in found["candidates"][0]["error"]


BIG = """\
model: {{huggingface: {model}.json, sequence_length: 512}}
cluster: {{machine: {machine}, ranks: 4{cluster}}}
strategy: {{kind: {kind}}}
batch: {{per_device: 8}}
precision: {{compute: bf16}}
price: {{per_device_hour: {price} usd}}
training: {{samples: 1e6}}
"""


def big(**change: str) -> str:
    known = {"model": "gpt2-large", "machine": "dgx-h100", "cluster": "", "kind": "ddp"}
    return BIG.format(**{**known, "price": "2.00", **change})


def test_what_does_not_fit_is_not_chosen(tmp_path: Path) -> None:
    ddp, fsdp = write(
        tmp_path,
        ddp=big(model="llama-3-8b", price="0.01"),
        fsdp=big(model="llama-3-8b", kind="fsdp"),
    )
    found = answer(ddp, fsdp)
    assert [c["fits"] for c in found["candidates"]] == ["no", "yes"]
    assert found["recommendation"] == "fsdp"
    assert any("does not fit" in text for text in found["warnings"])


def test_vary_makes_a_candidate_of_every_value(tmp_path: Path) -> None:
    text = toy("10 ms").replace("{kind: ddp}", "{kind: ddp, bucket_cap_mb: 1}")
    (path,) = write(tmp_path, a=text)
    found = answer(path, vary=["strategy.kind=ddp,fsdp"])
    assert [c["name"] for c in found["candidates"]] == ["strategy.kind=ddp", "strategy.kind=fsdp"]
    assert any("strategy.bucket_cap_mb is left out: fsdp" in text for text in found["warnings"])
    both = answer(path, vary=["strategy.kind=ddp,fsdp", "cluster.ranks=2,4"])
    assert [c["ranks"] for c in both["candidates"]] == [2, 4, 2, 4]
    with pytest.raises(Refused, match=r"--vary strategy.kind=fdsp.*'fsdp'"):
        answer(path, vary=["strategy.kind=fdsp"])
    with pytest.raises(Refused, match="--vary nothing"):
        answer(path, vary=["nothing"])


def test_vary_takes_its_key_out_of_the_sweep(tmp_path: Path) -> None:
    (path,) = write(tmp_path, a=toy("10 ms", more="sweep: {cluster.ranks: [1, 8]}\n"))
    found = answer(path, vary=["cluster.ranks=2,4"])
    assert [c["ranks"] for c in found["candidates"]] == [2, 4]
    (path,) = write(tmp_path, b=toy("10 ms", more="sweep: [{cluster.ranks: 1}]\n"))
    with pytest.raises(Refused, match="points of the sweep set this key"):
        answer(path, vary=["cluster.ranks=2,4"])


# -- the objective --------------------------------------------------------------------------------


def test_cost_counts_where_all_have_prices_and_time_elsewhere(tmp_path: Path) -> None:
    slow, quick = write(
        tmp_path,
        slow=toy("20 ms", more="price: {per_device_hour: 1.00 usd}\ntraining: {samples: 1000}\n"),
        quick=toy("10 ms", more="price: {per_device_hour: 3.00 usd}\ntraining: {samples: 1000}\n"),
    )
    found = answer(slow, quick)
    assert (found["by"], found["recommendation"]) == ("cost", "slow")
    assert answer(slow, quick, by="time")["recommendation"] == "quick"
    quick.write_text(toy("10 ms", more="training: {samples: 1000}\n"))
    found = answer(slow, quick)
    assert (found["by"], found["recommendation"]) == ("time", "quick")
    assert any("quick has no price" in text for text in found["warnings"])
    with pytest.raises(Refused, match="--by cost: quick has no `price`"):
        answer(slow, quick, by="cost")
    with pytest.raises(Refused, match="--by energy: slow has no `energy`"):
        answer(slow, quick, by="energy")


def test_who_pays_for_electricity_alone_is_named(tmp_path: Path) -> None:
    power = "energy: {price: 0.30 usd/kWh, idle_power: 90 W, host_power: 300 W}"
    own = big().replace("price: {per_device_hour: 2.00 usd}", power)
    a, b = write(tmp_path, rented=big(), own=own)
    warnings = answer(a, b)["warnings"]
    assert "own: no price of its devices; its cost is electricity alone" in warnings
    assert not any("electricity alone" in text for text in answer(b)["warnings"])


def test_cost_and_days_are_those_of_the_run(tmp_path: Path) -> None:
    (path,) = write(tmp_path, a=big())
    found, point = answer(path)["candidates"][0], dpsim.predict(dpsim.read(path)).points[0]
    assert found["cost_usd"] == pytest.approx(point["cost_usd"], rel=1e-12)
    assert found["days"] == pytest.approx(point["time_to_train_s"] / 86400, rel=1e-12)


@pytest.mark.parametrize("devices", ["per_device_hour: 2.50 usd", "per_node_hour: 17 usd"])
def test_at_the_break_even_price_the_runner_up_costs_the_same(tmp_path: Path, devices: str) -> None:
    """Other costs stay; the runner-up has a network and electricity to pay for too."""
    network = f"price: {{{devices}, network: {{per_node_hour: 0.20 usd}}}}"
    power = "\nenergy: {price: 0.30 usd/kWh, idle_power: 90 W, host_power: 300 W}"
    other = big(cluster=", gpus_per_node: 2, inter_node_bandwidth: 200 Gbit/s")
    other = other.replace("price: {per_device_hour: 2.00 usd}", network + power)
    one, two = write(tmp_path, one=big(), two=other)
    found = answer(one, two)
    assert found["recommendation"] == "one"
    price = found["break_even_price_usd"]
    two.write_text(other.replace(devices, f"per_device_hour: {price:.9f} usd"))
    first, second = answer(one, two)["candidates"]
    assert second["usd_per_device_hour"] == pytest.approx(price, rel=1e-6)
    assert second["objective"] == pytest.approx(first["objective"], rel=0.01)


SPARE = """
failures: {node: {mtbf: 1000 d}}
checkpoint: {every: 30 min, mode: sync, write: 20 GB/s}
recovery: {kind: spares, spares: {warm: 1}, repair: {automatic: 2 h}}
"""


def test_spare_nodes_that_are_paid_for_are_named(tmp_path: Path) -> None:
    """They are in the dollars; the price of a device-hour is that of the scenario."""
    with_spare, without = write(tmp_path, spare=big(price="3.00") + SPARE, none=big())
    found = answer(without, with_spare)
    none, spare = found["candidates"]
    assert (none["spare_nodes"], spare["spare_nodes"]) == (0, 1)
    assert spare["usd_per_device_hour"] == pytest.approx(3.00)
    devices = spare["ranks"] * (spare["nodes"] + 1) / spare["nodes"]
    assert spare["usd_per_hour"] == pytest.approx(3.00 * devices)
    assert any(
        "count warm spare nodes" in text and "1 of spare" in text for text in sentences(found)
    )
    assert not any("spare" in text for text in sentences(answer(without)))


def test_a_candidate_that_no_other_beats_in_any_draw_is_said_to_be_so(tmp_path: Path) -> None:
    dear, cheap = write(tmp_path, dear=big(price="3.00"), cheap=big())
    found = answer(dear, cheap)
    assert found["recommendation"] == "cheap"
    said = sentences(found)
    assert "No other candidate was better than cheap in any draw." in said
    assert not any("If it is wrong" in text for text in said)


# -- uncertainty that is shared -------------------------------------------------------------------


def test_the_same_machine_at_a_lower_price_is_surely_better(tmp_path: Path) -> None:
    """Their intervals overlap, but what is not known is the same for both."""
    a, b = write(tmp_path, a=big(price="2.00"), b=big(price="1.98"))
    found = answer(a, b)
    first, second = found["candidates"]
    assert first["objective_low"] < second["objective"] < first["objective_high"]
    assert found["recommendation"] == "b"
    assert second["probability_best"] == 1
    assert second["expected_regret_usd"] == 0


def test_equal_candidates_are_better_half_the_time(tmp_path: Path) -> None:
    a, b = write(tmp_path, a=big(), b=big())
    found = answer(a, b)
    assert [c["probability_best"] for c in found["candidates"]] == [0.5, 0.5]
    assert found["pairs"][0]["probability_a_better"] == 0.5
    assert found["recommendation"] == "a"
    assert found["measurements"] == []


def test_causes_are_shared_on_the_same_generation_and_fabric_only(tmp_path: Path) -> None:
    def causes(**change: str) -> set[Cause]:
        (path,) = write(tmp_path, x=big(**change))
        found = comparison([played(each) for each in asked([path])])
        return set(found.causes)

    two_nodes = ", gpus_per_node: 2"
    own = causes(cluster=two_nodes)
    program = {"overheads (prior)", "program (prior)"}
    every = {"compute (prior)", "collectives (prior)", *program}
    assert {cause.name for cause in own} == every
    assert causes(cluster=two_nodes + ", inter_node_bandwidth: 100 Gbit/s") == own
    other_fabric = causes(cluster=two_nodes + ", inter_node_kind: roce")
    assert {cause.name for cause in own & other_fabric} == {"compute (prior)", "program (prior)"}
    other_program = causes(cluster=two_nodes, kind="fsdp")
    assert {cause.name for cause in own & other_program} == every - program
    alike = causes(machine="dgx-h200", cluster=two_nodes)
    assert {cause.name for cause in own & alike} == {"compute (prior)", "collectives (prior)"}
    other_device = causes(machine="dgx-a100", cluster=two_nodes)
    assert {cause.name for cause in own & other_device} == {"collectives (prior)"}
    assert not {c for c in own & causes(model="bert-large") if c.name.startswith("compute")}


def test_programs_have_errors_of_their_own_within_the_same_interval(tmp_path: Path) -> None:
    """Two uncalibrated programs, and twice what one calibrated run misses between them."""
    (path,) = write(tmp_path, a=big())
    (job,) = played(asked([path])[0]).jobs
    split = apart(job.case, job.causes)
    run = compute_range(job.case, True)
    assert split["program (prior)"] == pytest.approx(run)
    for side in (0, 1):
        widths = [math.hypot(*(math.log(e[side]) for e in c.values())) for c in (job.causes, split)]
        assert widths[0] == pytest.approx(widths[1])
    ends = ratio_interval(job.case, job.causes, job.causes)
    both = math.hypot(*map(math.log, run))
    assert ends == pytest.approx((math.exp(-both), math.exp(both)))


def test_run_to_run_differs_for_each_candidate(tmp_path: Path) -> None:
    text = big() + "calibrate: {step_time: 150 ms}\n"
    a, b = write(tmp_path, a=text, b=text)
    found = comparison([played(each) for each in asked([a, b])])
    assert sum(cause.name == "run to run" for cause in found.causes) == 2


def test_draws_do_not_depend_on_who_else_is_compared(tmp_path: Path) -> None:
    a, b, c = write(
        tmp_path, a=big(), b=big(machine="dgx-a100", price="1.00"), c=big(kind="fsdp", price="1.90")
    )
    two, three = answer(a, b), answer(c, a, b)
    pair = next(p for p in three["pairs"] if (p["a"], p["b"]) == ("a", "b"))
    assert pair == two["pairs"][0]
    assert 0.05 < pair["probability_a_better"] < 0.95
    assert answer(a, b) == two
    other = answer(a, b, seed=1)["pairs"][0]["probability_a_better"]
    assert other != pair["probability_a_better"]
    error = math.sqrt(2.0) * pair["probability_a_better_error"]  # that of a difference of two
    assert other == pytest.approx(pair["probability_a_better"], abs=5 * error)
    assert sum(c["probability_best"] for c in three["candidates"]) == pytest.approx(1.0)


# -- closed forms ---------------------------------------------------------------------------------


class Made(Comparison):
    """A comparison of made-up objectives."""


def made(*rows: tuple[float, dict[Cause, float]], draws: int = 200_000) -> Comparison:
    """Candidates with a median objective and, for each cause, the standard deviation of the
    logarithm."""
    candidates = tuple(Candidate(f"c{i}", f"c{i}", ()) for i in range(len(rows)))
    found = Made(candidates, EqualWork(((),) * len(rows), True), "time", 0, draws, ())
    terms = {
        i: (
            Term(
                median,
                median,
                tuple(
                    Factor(cause, math.exp(-Z90 * sigma), math.exp(Z90 * sigma))
                    for cause, sigma in sigmas.items()
                ),
            ),
        )
        for i, (median, sigmas) in enumerate(rows)
    }
    found.__dict__["terms"] = terms
    return found


X, Y, SHARED = Cause("x", ()), Cause("y", ()), Cause("shared", ())


def exchange(a: float, b: float, v: float) -> float:
    """E[max(A - B, 0)] of lognormals with means a and b and standard deviation v of log(A/B)."""
    d = math.log(a / b) / v + v / 2
    return a * PHI(d) - b * PHI(d - v)


def test_probability_and_regret_of_two_lognormals() -> None:
    found = made((1.0, {X: 0.2, SHARED: 0.5}), (1.1, {Y: 0.15, SHARED: 0.5}))
    v = math.hypot(0.2, 0.15)
    first, second = _decided(found)
    chance = PHI(math.log(1.1) / v)
    assert first["probability_best"] == pytest.approx(
        chance, abs=4 * first["probability_best_error"]
    )
    shared = math.exp(0.5**2 / 2)
    means = [math.exp(0.2**2 / 2) * shared, 1.1 * math.exp(0.15**2 / 2) * shared]
    for got, (a, b) in ((first, means), (second, means[::-1])):
        want = exchange(a, b, v)
        assert got["expected_regret"] == pytest.approx(want, abs=4 * got["expected_regret_error"])
        assert got["expected_regret_error"] < 0.01 * got["expected_regret"] + 1e-3


def _decided(found: Comparison) -> list[dict[str, Any]]:
    return [decided(found)[i] for i in found.usable]


@pytest.mark.parametrize("left", [0.0, 0.3, 0.8])
def test_the_value_of_a_measurement_is_that_of_its_closed_form(left: float) -> None:
    """Knowing all but `left` of X's standard deviation, one chooses by the mean that is left."""
    found = made((1.0, {X: 0.3, SHARED: 0.4}), (1.02, {SHARED: 0.4}))
    measurement = measure_next.Measurement("step", "c0", "x", (), {X: left})
    value = measure_next._value(found, measurement)
    shared = math.exp(0.4**2 / 2)
    a, b = math.exp(0.3**2 / 2) * shared, 1.02 * shared
    known = 0.3 * math.sqrt(1 - left**2)
    want = min(a, b) - (a - exchange(a, b, known))
    assert value.saves == pytest.approx(want, abs=5 * value.error)
    assert value.saves > 0


def test_measuring_what_all_share_saves_nothing() -> None:
    found = made((1.0, {X: 0.3, SHARED: 0.4}), (1.02, {SHARED: 0.4}))
    measurement = measure_next.Measurement("step", "c0", "shared", (), {SHARED: 0.0})
    assert measure_next._value(found, measurement).saves == 0


def test_no_measurement_saves_more_than_the_regret() -> None:
    found = made((1.0, {X: 0.3}), (1.02, {Y: 0.2}))
    regret = min(row["expected_regret"] for row in _decided(found))
    values = [
        measure_next._value(found, measure_next.Measurement("step", "c0", "m", (), left)).saves
        for left in ({X: 0.5}, {X: 0.0}, {X: 0.0, Y: 0.0})
    ]
    assert values == sorted(values)
    assert values[-1] == pytest.approx(regret, rel=0.02)
    assert values[1] < regret


def test_a_factor_has_its_ends_at_5_and_95_percent() -> None:
    factor = Factor(X, 0.8, 1.7)
    z = numbers(X, 0, 400_000)
    low, high = np.quantile(factor.of(z), (0.05, 0.95))
    assert low == pytest.approx(0.8, rel=0.005)
    assert high == pytest.approx(1.7, rel=0.01)
    assert factor.mean == pytest.approx(float(factor.of(z).mean()), rel=0.005)
    assert factor.of(np.zeros(1))[0] == 1


# -- what to measure ------------------------------------------------------------------------------


def test_a_run_of_nccl_tests_is_proposed_where_the_network_decides(tmp_path: Path) -> None:
    two_nodes = ", gpus_per_node: 2"
    slow = two_nodes + ", inter_node_bandwidth: 100 Gbit/s, inter_node_kind: roce, nics_per_node: 1"
    a, b = write(tmp_path, a=big(cluster=two_nodes), b=big(cluster=slow))
    times = [c["step_time_s"] for c in answer(a, b)["candidates"]]
    b.write_text(big(cluster=slow, price=f"{2.0 * times[0] / times[1]:.6f}"))
    found = answer(a, b)
    best = found["measure_next"]
    assert best["kind"] == "nccl-tests"
    assert best["saves"] > 0
    assert 0 <= best["expected_regret_after"] < best["expected_regret_before"]
    first = best["commands"][0]
    assert first.startswith("mpirun -np 4 -N 2 all_reduce_perf -b ")
    assert "-e 64M" in first or "-e 32M" in first or "-e 128M" in first or "-e 256M" in first
    assert best["commands"][1].startswith("dpsim calibrate ")
    steps = [m for m in found["measurements"] if m["kind"] == "step"]
    assert not steps or steps[0]["saves"] < best["saves"]


@pytest.mark.parametrize(
    ("machine", "ranks", "hosts"),
    [
        ("dgx-h100", 4, (1, 4)),
        ("dgx-h100", 16, (2, 8)),
        ("gb200-nvl72", 32, (8, 4)),
        ("gb200-nvl72", 2, (1, 2)),
    ],
)
def test_processes_are_started_on_hosts(
    tmp_path: Path, machine: str, ranks: int, hosts: tuple[int, int]
) -> None:
    """A rack of 72 GPUs has 18 hosts."""
    (path,) = write(tmp_path, a=big(machine=machine))
    path.write_text(path.read_text().replace("ranks: 4", f"ranks: {ranks}"))
    (job,) = played(asked([path])[0]).jobs
    assert measure_next._hosts(job.case, ranks) == hosts


def test_a_step_on_the_device_is_proposed_where_the_device_decides(tmp_path: Path) -> None:
    a, b = write(tmp_path, a=big(), b=big(machine="dgx-a100"))
    times = [c["step_time_s"] for c in answer(a, b)["candidates"]]
    b.write_text(big(machine="dgx-a100", price=f"{2.0 * times[0] / times[1]:.6f}"))
    best = answer(a, b)["measure_next"]
    assert best["kind"] == "step"
    assert best["commands"][0].startswith("dpsim measure --world-size 4 -o ")
    assert "calibrate: {step_time: MEASURED, ranks: 1}" in best["command"]


def test_what_was_measured_is_not_proposed_again(tmp_path: Path) -> None:
    text = big() + "calibrate: {step_time: 150 ms, ranks: 1}\n"
    a, b = write(tmp_path, a=text, b=text.replace("kind: ddp", "kind: fsdp"))
    found = comparison([played(each) for each in asked([a, b])])
    assert {m.kind for m in measure_next.possible(found)} == {"nccl-tests"}


# -- the command ----------------------------------------------------------------------------------

KEYS = {
    "name", "step_time_s", "efficiency", "bottleneck", "memory_bytes", "days", "cost_usd",
    "energy_kwh", "probability_best", "expected_regret_usd",
}  # fmt: skip


def test_the_command_prints_one_document(cli, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    write(tmp_path, a=toy("10 ms"), b=toy("20 ms"))
    code, out, _ = cli("compare", str(tmp_path), "--json")
    found = json.loads(out)
    assert code == 0
    assert all(set(c) >= KEYS for c in found["candidates"])
    top = {"candidates", "pairs", "recommendation", "break_even_price_usd", "measure_next"}
    assert top | {"warnings"} <= set(found)
    assert found["recommendation"] == "a"
    code, out, err = cli("compare", str(tmp_path), "--by", "colour")
    assert (code, out) == (2, "")
    assert "cost, time, energy" in err


def test_a_candidate_that_cannot_be_chosen_is_a_finding(cli, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    write(tmp_path, a=toy("10 ms"), b=toy("1 ms", 8, more="batch: {global: 3}\n"))
    code, out, _ = cli("compare", str(tmp_path))
    assert code == 1
    assert "no number" in out
    write(tmp_path, c="model: 3\n")
    code, _, err = cli("compare", str(tmp_path))
    assert code == 2
    assert "c.yaml" in err


def test_files_and_page_are_written_and_names_stay_text(tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)>"
    write(tmp_path, a=toy("10 ms"), **{evil: toy("20 ms")})
    found = answer(tmp_path)
    names = write_comparison(found, tmp_path / "out")
    assert sorted(names) == sorted(FILES)
    there = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert there == sorted([*FILES, "dpsim.sha256"])
    text = (tmp_path / "out" / "index.html").read_text()
    assert "<img" not in text
    assert "&lt;img" in text
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert make_figure(found).axes


def test_a_single_candidate_is_told_and_nothing_is_chosen_between(tmp_path: Path) -> None:
    from rich.console import Console

    (path,) = write(tmp_path, a=mix("10 ms", "20 ms", ("1", "1")))
    found = answer(path)
    assert found["pairs"] == []
    assert found["break_even_price_usd"] is None
    console = Console(record=True, width=118)
    print_comparison(found, console, "")
    said = console.export_text()
    assert "nothing to choose between" in said
    assert "one" in said
    assert page(found)


# -- the bundled folders --------------------------------------------------------------------------


def test_the_buyers_folder_holds_three_candidates_with_the_same_jobs() -> None:
    place = data_folder("scenarios") / "buy-64-gpus"
    names = [Path(p).stem for p in sources("buy-64-gpus")]
    assert names == sorted(p.stem for p in place.glob("*.yaml"))
    assert len(names) == 3
    mixes = [read_mix(p) for p in sources(place)]
    for mix_ in mixes:
        assert [job.name for job in mix_.jobs] == ["llama", "resnet"]
        assert {job.loaded.scenario.cluster.nodes for job in mix_.jobs} == {8}
    first, *others = ([j.loaded.scenario.model for j in m.jobs] for m in mixes)
    assert all(other == first for other in others)


def test_the_memory_spiral_exposes_communication() -> None:
    """The larger the model, the smaller the batch that fits, and the more of the step is exposed;
    twice the batch would not fit."""
    found = dpsim.predict(dpsim.read("memory-spiral")).points
    shares = [p["exposed_communication_s"] / p["step_time_s"] for p in found]
    batches = [p["global_batch"] for p in found]
    assert shares == sorted(shares)
    assert batches == sorted(batches, reverse=True)
    assert all(p["fits"] in FITTING for p in found)
    changes = [
        json.dumps({**p["set"], "batch.per_device": 2 * p["set"]["batch.per_device"]})
        for p in found
    ]
    larger = dpsim.predict(dpsim.read("memory-spiral", [f"sweep=[{','.join(changes)}]"])).points
    assert not any(p["fits"] in FITTING for p in larger[1:])


# -- decisions on measured pairs ------------------------------------------------------------------

ROWS = """\
series_id,source_id,model,accelerator,gpus_per_node,total_gpus,inter_node,inter_gbits_s_per_node,\
batch_per_gpu,precision,strategy,framework,value,unit
fast,S,ResNet-50,V100,1,1,100 Gb/s InfiniBand,100,64,FP32,DP all-reduce,PyTorch,350,images/s
fast,S,ResNet-50,V100,1,8,100 Gb/s InfiniBand,100,64,FP32,DP all-reduce,PyTorch,2600,images/s
slow,S,ResNet-50,V100,1,1,1 Gb/s Ethernet,1,64,FP32,DP all-reduce,PyTorch,350,images/s
slow,S,ResNet-50,V100,1,8,1 Gb/s Ethernet,1,64,FP32,DP all-reduce,PyTorch,300,images/s
alike,S,ResNet-50,V100,1,1,10 Gb/s Ethernet,10,64,FP32,DP all-reduce,PyTorch,350,images/s
alike,S,ResNet-50,V100,1,8,10 Gb/s Ethernet,10,64,FP32,DP all-reduce,PyTorch,2500,images/s
"""


def test_decisions_are_judged_on_pairs_of_one_workload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three fabrics at 8 GPUs: two pairs differ by more than 10 %, one does not; calibrated rows
    are in uncalibrated pairs only, where all three are as fast as one another."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "validation"))
    import decisions

    (tmp_path / "t.csv").write_text(ROWS)
    found = decisions.judged(decisions.read_table(tmp_path / "t.csv"))
    assert [pair.kind for pair in found.pairs] == ["fabric, calibrated"] * 2
    assert found.close == 4
    assert {pair.picks["dpsim"] for pair in found.pairs} == {1.0}
    assert {pair.picks["more Gbit/s"] for pair in found.pairs} == {1.0}
    assert {pair.picks["linear"] for pair in found.pairs} == {0.5}
    first = max(found.pairs, key=lambda pair: pair.slower)
    assert first.slower == pytest.approx(2600 / 300 - 1)
    assert first.regret("linear") == pytest.approx(first.slower / 2)
    assert first.regret("dpsim") == 0


@pytest.mark.parametrize(
    "more",
    [
        "compression: {kind: one_bit, freeze_step: 90, encode: 0 s, decode: 9 ms}\n",
        "evaluation: {every: 100 steps, takes: 200 s}\n",
    ],
    ids=["warm-up", "pauses"],
)
def test_draws_are_around_the_time_to_train_whatever_it_is_made_of(
    more: str, tmp_path: Path
) -> None:
    """A warm-up before compression and pauses for evaluation count in what is best; a toy's numbers
    are exact, so that there is nothing to draw."""
    asks = "training: {samples: 2000, largest_batch: 1000}\nprice: {per_device_hour: 3.6 usd}\n"
    (path,) = write(tmp_path, a=toy("10 ms", more=asks + more))
    point = dpsim.predict(dpsim.read(path)).points[0]
    time = point["time_to_train_s"]
    assert abs(time / (point["steps"] * point["step_time_s"]) - 1) > 0.01
    for by, value in (("time", time), ("cost", point["cost_usd"])):
        (found,) = answer(path, by=by)["candidates"]
        for key in ("objective", "objective_low", "objective_high"):
            assert found[key] == pytest.approx(value, rel=1e-9)


def test_a_key_that_is_varied_twice_is_named_as_it_was_given(tmp_path: Path) -> None:
    (path,) = write(tmp_path, a=toy("10 ms"))
    with pytest.raises(Refused, match=r"^--vary cluster\.ranks: is given twice"):
        answer(path, vary=["cluster.ranks=2", "cluster.ranks=4"])


REAL = (
    "model: {name: resnet50}\ncluster: {machine: v100-1x100g, ranks: 16}\nbatch: {per_device: 64}\n"
    "strategy: {kind: ddp, torch: '1.5'}\noptimizer: {kind: momentum}\n"
    "training: {samples: 1024000, largest_batch: 100000}\n"
)
NEVER = "compression: {kind: one_bit, freeze_step: 100000, encode: 1 ms, decode: 1 ms}\n"


def test_runs_that_end_before_they_differ_are_equal(tmp_path: Path) -> None:
    """Neither compresses a gradient; one run differs from the next as it would by itself."""
    files = write(tmp_path, plain=REAL, same=f"title: another\n{REAL}", compressed=REAL + NEVER)
    found = answer(*files)
    assert [pair["equal"] for pair in found["pairs"]] == [True] * 3
    assert [pair["probability_a_better"] for pair in found["pairs"]] == [0.5] * 3
    assert headline(found).startswith("plain and same are equal: ")
    assert "plain and compressed are equal." in sentences(found)
    spread = found["candidates"][0]
    assert spread["objective_high"] > 1.2 * spread["objective_low"]
    best = [one["probability_best"] for one in found["candidates"]]
    assert best == pytest.approx([1 / 3] * 3)


def test_pauses_are_as_long_as_they_are_said_whatever_a_step_takes(tmp_path: Path) -> None:
    """999 steps, and nine evaluations of 100 s: every draw of the steps is 900 s longer."""
    paused = "evaluation: {every: 100 steps, takes: 100 s}\n"
    quick, slow = (answer(one)["candidates"][0] for one in write(tmp_path, a=REAL, b=REAL + paused))
    for key in ("objective", "objective_low", "objective_high"):
        assert slow[key] == pytest.approx(quick[key] + 900.0, rel=1e-9)
    by_time = "evaluation: {every: 1 min, takes: 1 min}\n"
    (path,) = write(tmp_path, c=REAL + by_time)
    point = dpsim.predict(dpsim.read(path)).points[0]
    ideal, step = point["steps"] * point["step_time_s"], point["step_time_s"]
    more = point["time_to_train_s"] - ideal  # of slower steps there are more minutes
    low = point["step_time_low_s"] / step
    assert point["time_to_train_low_s"] == pytest.approx((ideal + more) * low)


def test_a_level_measured_on_one_machine_is_carried_to_others() -> None:
    """The file's own machine is the one that was measured on: as in a sweep, its level holds for
    all; the measured step itself is no other machine's."""
    machines = ["v100-1x100g", "dgx-h100"]
    found = dpsim.compare("quickstart", vary={"cluster.machine": machines})
    assert [text for text in found.document["warnings"] if "measured" in text] == [
        f"calibrate: measured at one cluster.machine at most, and carried to all of "
        f"{', '.join(machines)}"
    ]
    times = [one["step_time_s"] for one in found.document["candidates"]]
    swept = dpsim.sweep("quickstart", {"cluster.machine": machines, "cluster.ranks": [32]})
    assert times == pytest.approx(
        [one["step_time_s"] for one in swept.document["points"]], rel=1e-9
    )
    alone = dpsim.compare("quickstart", vary={"cluster.machine": ["dgx-h100"]})
    assert any("measured without cluster.machine=dgx-h100" in t for t in alone.document["warnings"])
