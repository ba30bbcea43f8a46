"""The names that rollmake shares with NeMo Gym 0.7.0: keys on rows and names of files."""

from pathlib import PurePath
from typing import TypeVar

P = TypeVar("P", bound=PurePath)

# Identity of a row.
TASK = "_ng_task_index"
ROLLOUT = "_ng_rollout_index"
ATTEMPT = "_ng_attempt_index"
ROLLOUT_ID = "_ng_rollout_id"
TASK_ID = "_ng_task_id"
# Routing of a row.
AGENT_REF = "agent_ref"
TASK_SOURCE = "task_source"
SKILLS_REF = "skills_ref"
SERVER = "_ng_environment_server"
RESULT_TYPE = "_ng_result_type"
PARAMS = "responses_create_params"
# What the verifier says.
RESPONSE = "response"
REWARD = "reward"
MASK = "mask_sample"
INVALID_JUDGE = "invalid_judge_response"
REUSE = "reuse_cached_deliverable"
# Where a record goes.
NO_PERSIST = "_ng_no_persist"
FAILURE_CLASS = "_ng_failure_class"
FAILURE_TERMINAL = "_ng_failure_terminal"
DRAINED = "_ng_dispatch_drained"
MIGRATED = "_ng_migrated_invalid_judge_response"
# What an infrastructure failure looked like.
FAILURE_TYPE = "_ng_failure_type"
FAILURE_MESSAGE = "_ng_failure_message"
FAILURE_STATUS = "_ng_failure_http_status"
FAILURE_BODY = "_ng_failure_response_body"
FAILURE_STAGE = "_ng_failure_stage"
FAILURE_PARTIAL = "_ng_failure_partial_response"
# What was observed on the way.
CAPTURE = "ng_model_call_capture"
OBSERVATIONS = "ng_agent_observations"
TRAJECTORY = "ng_trajectory"
PERF = "ng_perf"

# The materialized inputs of a run, whose output is called rollouts.jsonl.
MATERIALIZED_NAME = "rollouts_materialized_inputs.jsonl"


def failures_path(rollouts: P) -> P:
    """The sidecar of a rollouts file: the last suffix makes way for `_failures.jsonl`."""
    return rollouts.with_name(f"{rollouts.stem}_failures.jsonl")


def materialized_path(rollouts: P) -> P:
    """The materialized inputs that a rollouts file answers."""
    return rollouts.with_name(f"{rollouts.stem}_materialized_inputs.jsonl")


def aggregate_path(rollouts: P) -> P:
    """The aggregate metrics of a rollouts file."""
    return rollouts.with_name(f"{rollouts.stem}_aggregate_metrics.json")
