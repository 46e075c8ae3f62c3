"""A campaign against answers: what must hold for every scenario, on thousands of them.

    python tests/campaigns/invariants.py [--seed 1] [--count 5000] [--log invariants.jsonl]

Scenario number k is made from seed + k, over all strategies, schedules, backends, bundled machines
and kinds of variability.  On each the two laws that say most are asked (an answer holds together or
is refused in a sentence; both engines keep the rules and agree), and two others in turn.  The laws
are those of tests/test_invariants.py, as they stand there.  Every scenario is noted in the log when
it is done, and a second run goes on behind them.  Prints counts and every finding; exits with 1
where there is one.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

import generated  # noqa: E402
import test_invariants as laws  # noqa: E402
from hypothesis.errors import HypothesisDeprecationWarning, UnsatisfiedAssumption  # noqa: E402

from dpsim.machines.machine import load_machine, machine_names  # noqa: E402

Law = Callable[[generated.Data], None]
#: laws that are asked of every scenario
ALWAYS = (
    laws.test_a_scenario_has_a_checked_answer_or_is_refused_in_a_sentence,
    laws.test_both_engines_keep_the_rules_and_agree,
)
#: others, with the share of scenarios in which anything varies that they are made for [%]
IN_TURN = (
    (laws.test_a_scenario_reads_back_what_it_writes, 25),
    (laws.test_what_was_written_is_predicted_alike, 25),
    (laws.test_the_order_of_points_changes_no_number, 25),
    (laws.test_the_first_steps_do_not_depend_on_how_many_follow, 25),
    (laws.test_all_ranks_of_a_communicator_say_the_same_in_the_same_order, 25),
    (laws.test_longer_work_slower_links_and_later_ranks_never_end_a_run_earlier, 0),
    (laws.test_a_delay_of_d_costs_from_nothing_to_d_and_all_of_d_on_the_critical_path, 0),
    (laws.test_the_critical_path_leads_without_a_break_from_the_start_to_the_end, 25),
    (laws.test_an_operation_cut_in_two_changes_nothing, 25),
    (laws.test_a_step_takes_no_longer_than_everything_one_after_the_other, 0),
    (laws.test_which_of_equal_ranks_is_slow_does_not_matter, 0),
    (laws.test_all_times_twice_as_long_make_a_step_twice_as_long, 0),
    (laws.test_units_change_no_byte, 25),
    (laws.test_one_rank_talks_to_nobody, 0),
    (laws.test_other_ranks_change_nobodys_draws, 100),
)
#: ranks that are asked of a machine at most: two nodes, and no more than play quickly
MOST = 16


def all_machines() -> dict[str, int]:
    """Every bundled machine, and the most ranks that are asked of it."""
    found = {}
    for name in machine_names():
        machine = load_machine(name)
        nodes = 1 if machine.network is None else 2
        found[name] = min(nodes * machine.gpus_per_node, MOST)
    return found | generated.MACHINES


def asked(number: int, seed: int) -> list[tuple[Law, generated.Data]]:
    """The laws of scenario `number`, each with the scenario that it is made for."""
    plain = generated.seeded(seed + number)
    pairs: list[tuple[Law, generated.Data]] = [(law, plain) for law in ALWAYS]
    for turn in (2 * number, 2 * number + 1):
        law, varied = IN_TURN[turn % len(IN_TURN)]
        pairs.append((law, generated.seeded(seed + number, varied=varied)))
    return pairs


def held(law: Law, data: generated.Data) -> str:
    """ "held", "passed over" where the law says nothing of such a scenario, or what went wrong."""
    inner: Any = law
    try:
        inner.hypothesis.inner_test(data)
    except UnsatisfiedAssumption:
        return "passed over"
    except Exception:
        return traceback.format_exc(limit=-4)
    return "held"


def done(log: Path, seed: int) -> tuple[Counter[str], set[int], int]:
    """What a log says: outcomes, numbers of scenarios that are done, and findings."""
    counts, numbers, findings = Counter[str](), set[int](), 0
    for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else ():
        try:
            entry = json.loads(line)
        except ValueError:  # it was killed in its midst
            continue
        if entry["seed"] == seed:
            numbers.add(entry["number"])
            counts.update(entry["counts"])
            findings += len(entry["findings"])
    return counts, numbers, findings


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--log", type=Path, default=Path("invariants.jsonl"))
    chosen = parser.parse_args()
    generated.MACHINES.update(all_machines())
    warnings.simplefilter("ignore", HypothesisDeprecationWarning)  # of assume outside a test
    counts, numbers, findings = done(chosen.log, chosen.seed)
    with chosen.log.open("a", encoding="utf-8") as log:
        for number in range(chosen.count):
            if number in numbers:
                continue
            entry: dict[str, Any] = {"seed": chosen.seed, "number": number, "findings": []}
            own = Counter[str]()
            for law, data in asked(number, chosen.seed):
                outcome = held(law, data)
                wrong = outcome not in ("held", "passed over")
                own[f"{law.__name__}: {'WRONG' if wrong else outcome}"] += 1
                if wrong:
                    entry["findings"].append([law.__name__, data, outcome])
                    print(f"\n{number}: {law.__name__}\n{json.dumps(data)}\n{outcome}", flush=True)
            counts, findings = counts + own, findings + len(entry["findings"])
            log.write(json.dumps(entry | {"counts": own}) + "\n")
            log.flush()
    for name, count in sorted(counts.items()):
        print(f"{count:7,}  {name.removeprefix('test_')}")
    print(f"{chosen.count:,} scenarios from seed {chosen.seed}: {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
