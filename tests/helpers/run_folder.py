"""A run folder with everything that the report and the status read, made up but consistent."""

import json
import math
import random
import statistics
from pathlib import Path

import polars as pl

from rollmake.core.coverage import coverage, states
from rollmake.core.imputation import FAILED
from rollmake.core.latency import LatencySummary
from rollmake.core.shards import shard_names

NASTY = (
    "</script><script>alert(1)</script> <img src=x onerror=alert(2)> \" ' & {{ 7*7 }} "
    "\u202egnp.exe\u202c \x00\x1b[31m\u2028next line\u0007 \u0645\u0631\u062d\u0628\u0627 日本語 Z̸͓̈ "
)
SERVER = "quiz_server"


def _line(file, record):
    offset = file.tell()
    data = json.dumps(record, ensure_ascii=False).encode()
    file.write(data + b"\n")
    return offset, len(data)


def _outcome(rng, task, rollout, failing, missing):
    draw = rng.random()
    if draw < failing:
        return "agent_run_error" if rng.random() < 0.7 else "judge_failed"
    if draw < failing + missing:
        return "missing"
    return "scored"


def make_run(
    folder: Path,
    *,
    tasks=10,
    repeats=4,
    shards=3,
    failing=0.1,
    missing=0.1,
    text="What is 2 + 2?",
    seed=1,
    aggregate=True,
) -> Path:
    """Write a run of `tasks` times `repeats` rollouts, of which about the given shares fail or are missing."""
    rng = random.Random(seed)
    names = shard_names(shards)
    rewards, classes = {}, {}
    folder.mkdir(parents=True, exist_ok=True)
    plan_rows = []
    with (folder / "rollouts_materialized_inputs.jsonl").open("wb") as file:
        for task in range(tasks):
            for rollout in range(repeats):
                row = {"_ng_task_index": task, "_ng_rollout_index": rollout}
                row["responses_create_params"] = {"input": [{"role": "user", "content": f"{text} (task {task})"}]}
                offset, length = _line(file, row)
                plan_rows.append((task, rollout, task % shards, offset, length, b"\0" * 16, rollout, SERVER, "quiz"))
    columns = ("task", "rollout", "shard", "offset", "length", "digest", "repeat", "server", "agent")
    types = (pl.Int64, pl.Int64, pl.Int32, pl.Int64, pl.Int64, pl.Binary, pl.Int32, pl.String, pl.String)
    schema = dict(zip(columns, types, strict=True))
    pl.DataFrame(plan_rows, schema=schema, orient="row").write_parquet(folder / "plan.parquet")
    plan = {"version": 1, "shards": shards, "tasks": tasks, "rollouts": tasks * repeats}
    _json(folder / "plan.json", plan | {"materialized_bytes": 1, "digest": "ab" * 16, "environment": "scripted"})
    with (folder / "rollouts_failures.jsonl").open("wb") as sidecar:
        for index, name in enumerate(names):
            repaired = folder / "repaired" / name
            repaired.mkdir(parents=True)
            lines, latency, failed = [], LatencySummary(), {}
            with (repaired / "rollouts.jsonl").open("wb") as file:
                for task in range(index, tasks, shards):
                    ease = rng.random()
                    for rollout in range(repeats):
                        outcome = _outcome(rng, task, rollout, failing, missing)
                        if outcome == "scored":
                            latency.add(rng.lognormvariate(2, 1))
                            reward = float(rng.random() < ease)
                            rewards[task, rollout] = reward
                            offset, length = _line(file, _rollout(task, rollout, reward, text))
                            lines.append((task, rollout, 0, SERVER, "quiz", False, reward, offset, length))
                        elif outcome != "missing":
                            classes[task, rollout] = outcome
                            failed[outcome] = failed.get(outcome, 0) + 1
                            _line(sidecar, _failure(task, rollout, outcome, text))
            _scores(repaired / "scores.parquet", lines)
            _json(repaired / "repair.json", _repair(len(lines)))
            owed = len(range(index, tasks, shards)) * repeats
            gone = owed - len(lines) - sum(failed.values())
            _json(
                folder / "shards" / name / "collection.json", _collection(name, owed, len(lines), failed, gone, latency)
            )
    _json(folder / "coverage.json", _coverage(tasks, repeats, rewards, classes))
    if aggregate and rewards:
        _json(folder / "rollouts_aggregate_metrics.json", [_aggregate(rewards, repeats)])
    return folder


def _json(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def _rollout(task, rollout, reward, text):
    record = {"_ng_task_index": task, "_ng_rollout_index": rollout, "agent_ref": {"name": "quiz"}}
    content = [{"type": "output_text", "text": f"{text}\nThe answer is 4."}]
    record["response"] = {
        "output": [{"type": "reasoning"}, {"type": "message", "role": "assistant", "content": content}]
    }
    fields = {"reward": reward, "extracted_answer": "4", "expected_answer": text, "_ng_environment_server": SERVER}
    return record | fields


def _failure(task, rollout, failure_class, text):
    return {
        "_ng_failure_class": failure_class,
        "_ng_failure_type": "ClientResponseError",
        "_ng_failure_message": f"500, {text}",
        "_ng_failure_http_status": 500,
        "_ng_failure_response_body": text,
        "_ng_task_index": task,
        "_ng_rollout_index": rollout,
        "_ng_environment_server": SERVER,
    }


def _scores(path, lines):
    columns = ("task", "rollout", "attempt", "server", "agent", "masked", "reward", "offset", "length")
    types = (pl.Int64, pl.Int64, pl.Int32, pl.String, pl.String, pl.Boolean, pl.Float64, pl.Int64, pl.Int64)
    pl.DataFrame(lines, schema=dict(zip(columns, types, strict=True)), orient="row").write_parquet(path)


def _collection(name, owed, succeeded, failed, missing, latency):
    job = {"host": "node1", "pid": 7, "job_id": "12", "requests": owed}
    job |= {"started": "2026-01-02T03:04:05.000000Z", "ended": "2026-01-02T04:04:05.000000Z", "end": "sealed"}
    killed = job | {"ended": None, "end": "killed", "requests": 0, "started": "2026-01-02T02:04:05.000000Z"}
    counts = {"owed": owed, "succeeded": succeeded, "failed_by_class": failed, "gated": sum(failed.values())}
    rest = {"missing": missing, "requests": owed, "latency": latency.to_dict(), "jobs": [killed, job]}
    return {"version": 1, "shard": name} | counts | rest


def _repair(kept):
    file = {"lines": kept, "kept": kept, "gained": 0, "removed": {}, "changed": {}}
    rollouts = file | {"lines": kept + 3, "removed": {"torn": 1, "duplicate": 2}, "changed": {"white_space": 1}}
    files = {"rollouts.jsonl": rollouts, "rollouts_failures.jsonl": file, "rollouts_materialized_inputs.jsonl": file}
    keys = {"owed": kept, "succeeded": kept, "failed": 0, "recovered": 0, "missing": 0}
    return {"version": 1, "source": "rollouts.jsonl", "files": files, "keys": keys}


def _coverage(tasks, repeats, rewards, classes):
    keys = {"server": pl.String, "task": pl.Int64, "rollout": pl.Int64}
    owed = [(SERVER, task, rollout, "quiz") for task in range(tasks) for rollout in range(repeats)]
    stored = [(SERVER, *key, False, True) for key in rewards]
    failures = [(SERVER, *key, name, False, 1, True) for key, name in classes.items()]
    return coverage(
        states(
            pl.DataFrame(owed, schema=keys | {"agent": pl.String}, orient="row"),
            pl.DataFrame(stored, schema=keys | {"masked": pl.Boolean, "numeric": pl.Boolean}, orient="row"),
            pl.DataFrame(failures, schema=FAILED, orient="row"),
        ),
        max_attempts=3,
    )


def _statistics(values):
    std = statistics.stdev(values) if len(values) > 1 else 0.0
    return {
        "mean/reward": statistics.mean(values),
        "min/reward": min(values),
        "max/reward": max(values),
        "std/reward": std,
    }


def _aggregate(rewards, repeats):
    by_task, by_repeat = {}, {}
    for (task, rollout), reward in rewards.items():
        by_task.setdefault(task, []).append(reward)
        by_repeat.setdefault(rollout, []).append(reward)
    groups = [{"_ng_task_index": t, "num_rollouts": len(v)} | _statistics(v) for t, v in sorted(by_task.items())]
    levels = []
    for rollout, values in sorted(by_repeat.items()):
        numbers = _statistics(values)
        sem = numbers["std/reward"] / math.sqrt(len(values))
        levels.append({"_ng_rollout_index": rollout, "sample_count": len(values), "sem/reward": sem} | numbers)
    agent = _statistics(list(rewards.values()))
    means = [level["mean/reward"] for level in levels]
    if len(means) > 1:
        se = statistics.stdev(means) / math.sqrt(len(means))
        agent |= {"mean_across_repeats/mean/reward": statistics.mean(means), "se_across_repeats/mean/reward": se}
        agent |= {"ci_low_95_across_repeats/mean/reward": 0.1, "ci_high_95_across_repeats/mean/reward": 0.9}
    return {
        "agent_ref": {"name": "quiz"},
        "_ng_environment_server": SERVER,
        "agent_metrics": agent,
        "key_metrics": {"mean/reward": agent["mean/reward"]},
        "group_level_metrics": groups,
        "repeat_level_metrics": levels if len(levels) > 1 else [],
    }
