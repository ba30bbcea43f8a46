"""The scripted policy: repeatable, wrong as often as it is told, and never by accident."""

import json
import math
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollmake.environment.chat import answer_text
from rollmake.environment.policy import scripted_policy
from rollmake.environment.rows import read_row, result
from rollmake.environment.scripted import scripted_response
from rollmake.environment.settings import Embedded
from rollmake.environment.topology import AGENT

DEMO = [json.loads(line) for line in (Path(__file__).parents[2] / "config/demo/tasks.jsonl").read_text().splitlines()]
SETTINGS = Embedded(policy="scripted")


def rewards(settings, rows):
    for fields in rows:
        row = read_row(fields)
        response, _ = scripted_response(settings, row)
        yield result(row, response, answer_text(response))["reward"]


def asked(**fields):
    return {"responses_create_params": {"input": "q"}, "verifier": "numeric", "expected_answer": "42"} | fields


def test_the_demo_has_24_tasks_for_all_verifiers():
    assert len({task["responses_create_params"]["input"][0]["content"] for task in DEMO}) == 24
    assert {task["verifier"] for task in DEMO} == {"exact", "numeric", "choice", "regex"}
    assert {task["subset"] for task in DEMO} == {"arithmetic", "geography", "logic", "text"}
    assert {task["agent_ref"]["name"] for task in DEMO} == {AGENT}


def test_the_demo_is_neither_all_right_nor_all_wrong():
    found = list(rewards(SETTINGS, (task | {"_ng_rollout_index": i} for task in DEMO for i in range(4))))
    assert 0.55 < statistics.mean(found) < 0.85


@pytest.mark.parametrize("task", DEMO, ids=range(len(DEMO)))
@pytest.mark.parametrize(("error_rate", "reward"), [(0, 1.0), (1, 0.0)])
def test_every_demo_task_can_be_answered_rightly_and_wrongly(task, error_rate, reward):
    settings = Embedded(policy="scripted", error_rate=error_rate)
    assert set(rewards(settings, (task | {"_ng_rollout_index": i} for i in range(8)))) == {reward}


@pytest.mark.parametrize("error_rate", [0.1, 0.5, 0.9])
def test_the_error_rate_is_honoured(error_rate):
    settings, count = Embedded(policy="scripted", error_rate=error_rate), 2000
    wrong = count - sum(rewards(settings, (asked(_ng_rollout_index=i) for i in range(count))))
    assert abs(wrong / count - error_rate) < 4 * math.sqrt(error_rate * (1 - error_rate) / count)


def test_latency_is_spread_around_its_mean_and_bounded():
    settings = Embedded(policy="scripted", latency_s=2.0)
    seconds = [scripted_response(settings, read_row(asked(_ng_rollout_index=i)))[1] for i in range(2000)]
    assert 1.8 < statistics.mean(seconds) < 2.2
    assert 0 < min(seconds) < 0.1
    assert max(seconds) == 10.0


@pytest.mark.parametrize(
    "change",
    [
        {"_ng_rollout_index": 1},
        {"_ng_attempt_index": 1},
        {"responses_create_params": {"input": "Q"}},
        {"responses_create_params": {"input": "q", "metadata": {"extra_body": '{"seed": 1}'}}},
    ],
)
def test_what_makes_it_another_rollout(change):
    before, after = (scripted_response(SETTINGS, read_row(fields)) for fields in (asked(), asked(**change)))
    assert before[0]["id"] != after[0]["id"]
    assert before[1] != after[1]


@pytest.mark.parametrize(
    "change", [{"_ng_task_index": 9}, {"_ng_attempt_index": 0}, {"subset": "x"}, {"agent_ref": {}}]
)
def test_what_does_not(change):
    before, after = (scripted_response(SETTINGS, read_row(fields)) for fields in (asked(), asked(**change)))
    assert before == after


def test_the_seed_counts_and_may_be_large():
    drawn = {
        scripted_response(Embedded(policy="scripted", seed=seed), read_row(asked()))[0]["id"] for seed in (0, 1, 10**30)
    }
    assert len(drawn) == 3


def test_another_process_answers_the_same():
    program = (
        "from rollmake.environment.rows import read_row\n"
        "from rollmake.environment.scripted import scripted_response\n"
        "from rollmake.environment.settings import Embedded\n"
        f"print(scripted_response(Embedded(policy='scripted'), read_row({asked()!r})))"
    )
    there = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert there.strip() == str(scripted_response(SETTINGS, read_row(asked())))


@given(st.sampled_from("ABCDEFGHZ"), st.integers(0, 50))
def test_a_wrong_choice_is_never_the_right_one(letter, rollout):
    settings = Embedded(policy="scripted", error_rate=1)
    fields = asked(verifier="choice", expected_answer=letter, _ng_rollout_index=rollout)
    assert list(rewards(settings, [fields])) == [0.0]


@given(st.floats(-1e15, 1e15) | st.integers(-(10**18), 10**18), st.integers(0, 50))
def test_a_wrong_number_is_never_the_right_one(number, rollout):
    settings = Embedded(policy="scripted", error_rate=1)
    assert list(rewards(settings, [asked(expected_answer=number, _ng_rollout_index=rollout)])) == [0.0]


async def test_the_policy_waits_as_long_as_it_says():
    waited = []

    async def sleep(seconds):
        waited.append(seconds)

    row = read_row(asked())
    response = await scripted_policy(SETTINGS, sleep)(row)
    assert (response, waited[0]) == scripted_response(SETTINGS, row)


def test_usage_adds_up():
    usage = scripted_response(SETTINGS, read_row(asked()))[0]["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert usage["output_tokens_details"]["reasoning_tokens"] < usage["output_tokens"]
