"""Names that nothing has: what is not modelled is said to be, other words lead to what there is."""

from __future__ import annotations

import dataclasses
import pickle
import re
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from dpsim.cli import _explain
from dpsim.cli.app import app
from dpsim.core import plugins
from dpsim.core.record import Refused, build
from dpsim.core.unknown import by_meaning, example, missing, near, not_modelled, sentence
from dpsim.core.yamlfile import loads
from dpsim.describe.scenario import Scenario, read
from dpsim.machines.machine import load_device, load_machine
from dpsim.planning.candidates import asked
from dpsim.planning.grid import check, grid_of
from dpsim.planning.unswept import Unswept
from dpsim.planning.wanted import check_fields, parse_wanted

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    "setting",
    [
        "strategy.kind=fedavg",
        "strategy.kind=SlowMo",
        "strategy.kind=hogwild",
        "compression.kind=onebit-lamb",
        "speculative_decoding=true",
        "regions=[]",
        "model={name: mamba}",
        "model={name: retinanet}",
        "cluster.device=tpu-v3",
        "precision.compute=mxfp4",
    ],
)
def test_what_is_not_modelled_is_refused_by_name_with_what_to_do(setting: str) -> None:
    from dpsim.predict.prediction import predict

    with pytest.raises(Refused, match=r"is not modelled \([^)]+\); .{20}"):
        predict(read("quickstart", [setting]))


@pytest.mark.parametrize("kind", ["local_sgd", "data_parallel"])
@pytest.mark.parametrize("axis", ["tensor", "pipeline"])
def test_a_combination_that_is_not_modelled_is_refused_where_it_meets(kind: str, axis: str) -> None:
    from dpsim.predict.prediction import predict

    sets = [f"strategy={{kind: {kind}}}", f"parallel.{axis}=2", "cluster.nodes=1"]
    loaded = read("llama3-8b-h100", [*sets, "batch.accumulation=2"])
    with pytest.raises(Refused, match="is not modelled together with tensor, pipeline or expert"):
        predict(loaded)


def test_other_words_for_adapters_are_known() -> None:
    for word, key in (("lora_rank", "rank"), ("load_in_4bit", "base_dtype: nf4")):
        said = rf"model\.{word}: unknown key; did you mean 'adapters' \(with {key}\)\?"
        with pytest.raises(Refused, match=said):
            read("llama3-8b-h100", [f"model.{word}=8"])


def test_what_has_arrived_is_on_the_list_no_more() -> None:
    there = {name for folder in plugins.FOLDERS for name in plugins.names(folder)}
    there -= {"uniform"}  # a distribution; as a model it is not modelled
    there |= set(Scenario.__dataclass_fields__)
    listed = {name for entry in missing().values() for name in entry.names}
    assert not there & listed
    assert all(not_modelled(name) for name in listed)


def test_the_documents_and_the_list_call_the_same_things_not_modelled() -> None:
    readme = re.sub(r"\s+", " ", (ROOT / "README.md").read_text("utf-8"))
    told = readme.partition("refused by name")[2].partition(": ")[2].partition(".")[0]
    design = re.sub(r"\s+", " ", (ROOT / "docs/design.md").read_text("utf-8"))
    later = design.partition("## Not there yet")[2].lower()
    for what in re.split(r", (?:and )?|; ", told):
        assert what in missing(), what
    for what in missing():
        assert what.lower() in later, what


def test_a_key_of_another_kind_is_said_to_be_one() -> None:
    """Whoever asks for another kind is told how to set the section anew, and nobody else is."""
    kind = "strategy={kind: ddp, bucket_cap_mb: 5}"
    with pytest.raises(Refused, match=r"unknown key; .* it is of another strategy\.kind"):
        read("quickstart", [kind, "strategy.kind=horovod"])
    unswept = Unswept.of(read("quickstart", [kind]))
    with pytest.raises(Refused, match=r"another strategy\.kind"):
        check(grid_of({}, ["strategy.kind=horovod"]), unswept.changed)
    with pytest.raises(Refused) as caught:
        read("quickstart", ["strategy.zebra=5"])
    assert "another" not in str(caught.value)


TOY = {"model": {"name": "resnet50"}, "cluster": {"ranks": 1}, "collective": {"backend": "ideal"}}


def test_a_refusal_says_whether_a_key_is_unknown_wherever_it_goes() -> None:
    with pytest.raises(Refused) as caught:
        build(Scenario, {**TOY, "strategy": {"kind": "ddp", "zebra": 1}}, file=True)
    assert pickle.loads(pickle.dumps(caught.value)).unknown_key
    assert not Refused("'unknown key' is a title").unknown_key


def test_a_field_that_is_not_modelled_is_refused_by_name() -> None:
    wanted = parse_wanted("prefix_caching>=0.9")
    with pytest.raises(Refused, match="prefix_caching: 'prefix_caching' is not modelled"):
        check_fields([wanted.field], {"efficiency": 0.9}, "--require")


def test_what_is_shown_of_a_section_is_right() -> None:
    """Every example of a section is read as that section."""
    hints = get_type_hints(Scenario)
    sections = [name for name in hints if example(name)]
    assert {"precision", "price", "batch", "cluster"} <= set(sections)
    for name in sections:
        cls = next(c for c in (hints[name], *get_args(hints[name])) if dataclasses.is_dataclass(c))
        data, _ = loads(f"{name}: {example(name)}", "shown")
        assert build(cls, data[name], file=True)


def test_what_is_advised_in_place_of_what_is_missing_is_there() -> None:
    """Keys in advice are keys of a scenario."""
    sections = set(Scenario.__dataclass_fields__)
    for what, entry in missing().items():
        for section, key in re.findall(r"\b([a-z]+)\.([a-z_]+)", entry.instead):
            if section in sections and section not in ("strategy", "collective", "model"):
                assert key in _keys_of(section), f"{what}: {section}.{key}"


def _keys_of(section: str) -> set[str]:
    hint = get_type_hints(Scenario)[section]
    found = next(t for t in (hint, *get_args(hint)) if dataclasses.is_dataclass(t))
    return {field.name for field in dataclasses.fields(found)}


@pytest.mark.parametrize(
    ("name", "known", "found"),
    [
        ("nodes", ["cluster", "model"], ["cluster.nodes"]),
        ("gpus", ["nodes", "ranks"], ["ranks"]),
        ("batch_size", ["per_device", "global"], ["per_device"]),
        ("h200-sxm", ["h20", "h200", "h800-sxm"], ["h200"]),
        ("h200", ["dgx-h200", "gh200-4"], ["dgx-h200"]),
        ("DGX_H100", ["dgx-h100", "dgx-h200"], ["dgx-h100"]),
        ("3090", ["rtx3090", "two-rtx3090"], ["rtx3090", "two-rtx3090"]),
        ("zero3", ["ddp", "zero"], ["zero (with stage: 3)"]),
        ("ddq", ["ddp", "zero"], ["ddp"]),
        ("zebra", ["ddp"], []),
    ],
)
def test_hints_go_by_meaning_then_by_spelling(
    name: str, known: list[str], found: list[str]
) -> None:
    assert near(name, known) == found


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("inner_node_bandwidth", "inter_node_bandwidth", "'inter_node_bandwidth'"),
        ("critical_btach", "critical_batch", "'critical_batch'"),
        ("context_window", "sequence_length", "'sequence_length'"),
        ("checkpoint_num_layers", "recompute", "'recompute'"),
        ("server", "kind", "known here: kind"),
    ],
)
def test_what_is_spelt_alike_comes_before_what_begins_alike(
    name: str, known: str, meant: str
) -> None:
    assert meant in sentence(name, [known])
    assert "not modelled" not in sentence(name, [known])


def test_a_key_that_is_meant_comes_before_what_is_not_modelled() -> None:
    assert sentence("serve", ["servers"]) == "unknown key; did you mean 'servers'?"
    assert "not modelled" in sentence("rollout", ["kind"])
    assert by_meaning("clutser", ["cluster"]) == []


def test_a_device_where_a_machine_is_needed_names_the_machines_that_have_it() -> None:
    with pytest.raises(Refused, match="machines with H200-SXM5-141GB: a3-ultra, dgx-h200"):
        load_machine("h200-sxm")
    nowhere = (
        r"'titan-xp' is a device; machines with it: none; put it into one with cluster\.device"
    )
    with pytest.raises(Refused, match=nowhere):
        load_machine("titan-xp")
    found = "'rtx4090' is a device; machines with it: four-rtx4090, rtx4090-8"
    with pytest.raises(Refused, match=found):
        load_machine("rtx4090")
    with pytest.raises(Refused, match="'dgx-h100' is a machine, with H100-SXM5-80GB"):
        load_device("dgx-h100")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["tune", "quickstart"], "No such command 'tune'; it is: dpsim plan SCENARIO --tune KEY"),
        (["doctor"], "No such command 'doctor'; it is: dpsim show doctor"),
        (["zebra"], "No such command 'zebra'; it is: dpsim --help"),
        (["run", "quickstart", "--ranks", "16"], "; it is a key: --set cluster.ranks=…"),
        (["run", "quickstart", "--batch-size", "8"], "; it is a key: --set batch.per_device=…"),
        (["collective", "all_reduce", "--machine", "dgx-h100"], "No such option: --machine"),
        (["run", "dgx-h100"], "is a machine: `dpsim run SCENARIO --set cluster.machine=dgx-h100`"),
        (["run", "llama-3-8b"], "model: {huggingface: llama-3-8b, sequence_length: TOKENS}"),
        (
            ["plan", "quickstart", "--vary", "cluster.nodes", "--require", "rollouts>=1h"],
            "--require rollouts>=1h: 'rollouts' is not modelled (reinforcement learning",
        ),
        (["run", "train.py"], "`dpsim measure --world-size RANKS -- python train.py` records"),
        (["run", "quickstart", "--set", "model=vgg16"], "write {name: vgg16}"),
        (["run", "quickstart", "--set", "model={name: gpt2-xl}"], "write {huggingface: gpt2-xl,"),
        (["run", "quickstart", "--set", "cluster.inter_node_kind=ib"], "mean 'infiniband'?"),
        (["run", "quickstart", "--set", "precision.compute=fp4"], "'fp4' is not modelled"),
        (
            ["run", "quickstart", "--set", "cluster.nodes=1,2,4"],
            "one value, `dpsim sweep --grid cluster.nodes=1,2,4` plays each of several",
        ),
        (["run", "quickstart", "--set", "cluster.nodes=1:8:x2"], "--grid cluster.nodes=1:8:x2"),
        (
            ["run", "gpt2-xl-kernels", "--set", "model.sequence_length=4096"],
            "--set model.sequence_length=4096: model.sequence_length: 4,096 is beyond",
        ),
        (["collective", "gossip", "--cluster", "dgx-a100"], "gossip is not modelled; there are "),
        (["collective", "all_reduce", "--cluster", "8xA100"], "'dgx-a100'?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_people_type_leads_to_what_there_is(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        app()(arguments, standalone_mode=False)
        pytest.fail("was accepted")
    except Exception as error:
        assert _explain(error) == 2
    assert says in capsys.readouterr().err


def test_a_knob_of_another_kind_is_refused_with_what_to_write() -> None:
    with pytest.raises(Refused, match=r"strategy\.torch: unknown key; .*strategy=\{kind: …\} sets"):
        read("quickstart", ["strategy.kind=zero"])
    grid = grid_of({}, ["strategy.kind=ddp,fsdp", "strategy.bucket_cap_mb=25,100"])
    with pytest.raises(Refused, match=r"bucket_cap_mb: unknown key; .*compare --vary` leaves out"):
        check(grid, lambda change: read("quickstart", [f"{k}={v}" for k, v in change.items()]))


def test_values_of_a_knob_that_a_kind_does_not_have_are_one_candidate() -> None:
    axes = ["strategy.kind=ddp,fsdp", "strategy.bucket_cap_mb=25,100"]
    assert [one.name for one in asked(["quickstart"], vary=axes)] == [
        "strategy.kind=ddp strategy.bucket_cap_mb=25",
        "strategy.kind=ddp strategy.bucket_cap_mb=100",
        "strategy.kind=fsdp",
    ]
