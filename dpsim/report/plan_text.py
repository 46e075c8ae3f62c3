"""The question of a plan, and its answer, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpsim.core.units import show
from dpsim.planning.wanted import value_of
from dpsim.predict.point import UNFIT_WORDS
from dpsim.report.fields import interval, name_of, setting_text, shown
from dpsim.report.plan_mesh import mesh_text
from dpsim.report.text import bottleneck, clean, percent, ranks, signed, split_text

Document = Mapping[str, Any]
#: compute over the fastest schedule's step from which on losses inside it are worth a word
HIDDEN = 1.02


def question_text(document: Document) -> str:
    """What was asked, in one sentence."""
    asked = document["question"]
    at = f" at {setting_text(asked['at'])}" if asked["at"] else ""
    need = " and ".join(asked.get("require") or ())
    if asked["kind"] == "require":
        base = asked["relative_to"]
        compared = f", relative to {setting_text(base)}" if base is not None else ""
        return f"Which {asked['vary']} makes {need}{at}{compared}?"
    if asked["kind"] == "mesh":
        batch, again = asked["global_batch"], ", ".join(asked["recompute"])
        mesh = f"Which mesh of {ranks(asked['ranks'])}, with which recompute ({again}),"
        return f"{mesh} has the shortest step of {batch:,} samples?"
    if asked["kind"] == "choose":
        keys = ", ".join(axis["key"] for axis in asked["vary"])
        under = f" with {need}" if need else ""
        return f"Which {keys} has the least {name_of(asked['minimise'])}{under}?"
    if asked["kind"] == "largest":
        under = f" with {need}" if need else ""
        return f"How large can {asked['largest']} be{under}{at}?"
    best = "most" if asked["maximise"] else "least"
    return f"Which {', '.join(asked['tune'])} has the {best} {name_of(asked['objective'])}{at}?"


def required(document: Document) -> list[str]:
    """The fields that are required, apart from the step time and whether it fits."""
    names = [text.split(" ")[0] for text in document["question"].get("require") or ()]
    return [name for name in dict.fromkeys(names) if name != "fits"]


def with_interval(document: Document) -> list[str]:
    """Those of the required fields whose 90 % interval is known."""
    return [f for f in required(document) if any(interval(p, f) for p in document["points"])]


def any_has(document: Document, field: str) -> bool:
    """Whether `field` is a number at any point."""
    return any(value_of(point, field) is not None for point in document["points"])


def answer_text(document: Document) -> list[str]:
    """The answer in words."""
    kind = document["question"]["kind"]
    if kind == "require":
        found = _require_text(document) if document["found"] else _missed_text(document)
        return [*found, *_now_text(document), *_alone_text(document)]
    if not document["found"]:
        return _missed_text(document)
    texts = {
        "choose": _choose_text,
        "mesh": mesh_text,
        "largest": _largest_text,
        "tune": _tune_text,
    }
    return texts[kind](document)


def _require_text(document: Document) -> list[str]:
    answer, asked = document["answer"], document["question"]
    lines = [f"{clean(answer['key'])} {_stretch(answer)}{_reached(document, answer)}."]
    sure = answer["sure"]
    if any(point.get("holds_sure") != point.get("holds") for point in document["points"]) or (
        sure is None
    ):
        how = _stretch(sure) if sure else f"no value up to {asked['to']} is enough"
        lines.append(
            f"For the whole 90 % interval of the prediction: {how}"
            f"{_reached(document, sure) if sure else ''}."
        )
    return lines


def _stretch(found: Mapping[str, Any]) -> str:
    least, most = found["at_least"], found["at_most"]
    if least and most:
        return f"must be between {least['text']} and {most['text']}"
    if least:
        return f"must be at least {least['text']}"
    if most:
        return f"may be at most {most['text']}"
    return f"does not matter: it holds everywhere from {found['from']} to {found['to']}"


def _reached(document: Document, found: Mapping[str, Any]) -> str:
    """What the edge reaches, in brackets."""
    end = found["at_least"] or found["at_most"]
    fields = required(document)
    if end is None or not fields:
        return ""
    values = [f"{name_of(f)} {shown(end['point'], f)}" for f in fields]
    return f" ({', '.join(values)}; {_where(end['point'])}){_unfit(end['point'])}"


def _unfit(point: Mapping[str, Any]) -> str:
    """That a step is taken to need more memory than there is, if so."""
    if point.get("fits") not in UNFIT_WORDS:
        return ""
    words = UNFIT_WORDS[point["fits"]]
    return f", where it {words} in memory ({show(point['memory_bytes'], 'B', 3)} needed)"


def _where(point: Mapping[str, Any]) -> str:
    return f"{ranks(point['ranks'])}, step {show(point['step_time_s'], 's')}"


def _now_text(document: Document) -> list[str]:
    answer = document["answer"]
    if answer is None or "error" in answer["now"]["point"]:
        return []
    now, fields = answer["now"], required(document)
    values = ", ".join(f"{name_of(f)} {shown(now['point'], f)}" for f in fields)
    verdict = "holds" if now["holds"] else "does not hold"
    return [f"As the scenario stands, it {verdict}{f' ({values})' if values else ''}."]


def _alone_text(document: Document) -> list[str]:
    """That nobody knows how sure a required number is."""
    unknown = [f for f in required(document) if f not in with_interval(document)]
    if not unknown:
        return []
    names = " and ".join(name_of(f) for f in unknown)
    return [f"The 90 % interval of {names} is not known; yes and no are those of the value itself."]


def _missed_text(document: Document) -> list[str]:
    """Why there is no answer: by how much, and what binds."""
    told = document["infeasible"]
    lines = ["Nothing that was searched will do."]
    for miss in told.get("alone") or told["misses"]:
        lines.append(_miss(miss, told))
    if "alone" in told and not told["alone"]:
        both = " and ".join(miss["require"] for miss in told["misses"])
        lines.append(f"Each requirement can be met alone, not all together: nearest is {both}.")
        lines += [_miss(miss, told) for miss in told["misses"]]
    nearest = told.get("nearest")
    if nearest is not None and "error" not in nearest:
        lines.append(
            f"At {setting_text(nearest['set'])} ({_where(nearest)}) it is "
            f"{bottleneck(nearest['bottleneck'])} that binds: "
            f"{split_text(nearest)}{_unfit(nearest)}."
        )
        lines += _beside_computing(nearest)
    return lines


def _beside_computing(point: Mapping[str, Any]) -> list[str]:
    """That compute takes longer than it has to, where that is worth a word."""
    if point["compute_s"] < HIDDEN * point["bound_s"]:
        return []
    return [
        f"No schedule of the same program is faster than {show(point['bound_s'], 's')}: dpsim "
        "explain, with that --set, says what the rest of the compute is lost to."
    ]


def _miss(miss: Mapping[str, Any], told: Mapping[str, Any]) -> str:
    if miss["field"] == "fits" or miss["require"] == "fits":
        need = show(miss["value"], "B") if miss["value"] is not None else "more than there is"
        room = f"; a device has {show(miss['limit'], 'B')}" if miss["limit"] else ""
        return f"It does not fit in memory: at least {need} are needed{room}."
    change = miss.get("set", (told.get("nearest") or {}).get("set", {}))
    if miss["value"] is None:
        return f"{miss['require']}: there is no number."
    value = shown({miss["field"]: miss["value"], "throughput_unit": "per second"}, miss["field"])
    by = f", {percent(miss['by'])} away" if miss["by"] is not None else ""
    return f"{miss['require']}: the nearest is {value} at {setting_text(change)}{by}."


def _choose_text(document: Document) -> list[str]:
    answer = document["answer"]
    point, objective = answer["point"], answer["objective"]
    facts = [
        f"{name_of(f)} {shown(point, f)}{_bracket(point, f)}"
        for f in dict.fromkeys((objective, "time_to_train_s", "cost_usd", *required(document)))
        if value_of(point, f) is not None
    ]
    lines = [f"Take {setting_text(answer['set'])}: {', '.join(facts)}, on {_where(point)}."]
    sure = answer["sure"]
    if not document["question"]["require"]:
        return lines
    if sure is None:
        lines.append("For the whole 90 % interval of the prediction nothing searched is enough.")
    elif sure["set"] != answer["set"]:
        lines.append(
            f"For the whole 90 % interval: {setting_text(sure['set'])}, "
            f"{name_of(objective)} {shown(sure['point'], objective)}."
        )
    else:
        lines.append(
            "What is required holds over its whole 90 % interval; how surely it is the best of "
            "all, dpsim compare says."
        )
    return lines


def _bracket(point: Mapping[str, Any], field: str) -> str:
    ends = interval(point, field)
    return f" ({ends})" if ends not in ("", "exact") else ""


def _largest_text(document: Document) -> list[str]:
    answer = document["answer"]
    point, key = answer["point"], clean(answer["key"])
    likely = "likely " if point.get("fits") == "likely" else ""
    lines = [f"{key} can {likely}be {answer['value']:,}, limited by {clean(answer['limited_by'])}."]
    if answer["limited_by"] == "memory" and answer["following"]:
        short = show(answer["following"]["short_by"], "B", 3)
        lines[0] = lines[0][:-1] + f": {answer['following']['value']:,} is {short} short."
    if answer["limited_by"] == "memory" and not answer["raised_by"]:
        lines.append("No single change that was tried makes more fit.")
    if "error" not in point:
        rate = shown(point, "throughput_per_s")
        step = show(point["step_time_s"], "s")
        lines.append(f"There a step takes {step}: {rate}{_unfit(point)}.")
    return lines


def _tune_text(document: Document) -> list[str]:
    answer = document["answer"]
    objective, point = answer["objective"], answer["point"]
    gain = answer["gain"]
    text = (
        f"Best: {setting_text(answer['set'])}, {name_of(objective)} {shown(point, objective)}"
        f"{_bracket(point, objective)}{_unfit(point)}"
    )
    if gain is None:
        return [text + "."]
    over = _over(document["question"])
    lines = [f"{text}; {_gain_text(answer)} {over}."]
    for key, what in (
        ("same_batch", "At the present global batch"),
        ("same_learning", "Of those that are published to learn alike"),
    ):
        same = answer[key]
        if same is not None:
            lines.append(f"{what}: {setting_text(same['set'])}, {_gain_text(same)}.")
    return lines


def _over(asked: Mapping[str, Any]) -> str:
    """Over what a gain is: of what is to be small, now's value is divided by the new one."""
    objective = asked["objective"]
    if asked["maximise"]:
        return "over now"
    if objective.endswith("_s"):
        return "in speed over now"
    return f"over now (now's {name_of(objective)} over this one's)"


def _gain_text(gained: Mapping[str, Any]) -> str:
    low, high = gained["gain_low"], gained["gain_high"]
    ends = "" if low == high else f" (90 % interval {signed(low)} to {signed(high)})"
    return f"{signed(gained['gain'])}{ends}"
