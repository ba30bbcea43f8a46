"""scores.parquet: every scalar of a shard's repaired rollouts, so that scoring never reads the rollouts again."""

# One line per row of the repaired rollouts file, in its order. Fixed columns:
#   task, rollout   Int64    the key
#   attempt         Int32    `_ng_attempt_index`, 0 for a first attempt
#   server, agent   String   `_ng_environment_server` and the name in `agent_ref`, or null
#   masked          Boolean  truthy `mask_sample`
#   reward          Float64  the reward, if it is a number; else null (unscored)
#   offset, length  Int64    byte range of the line in the repaired file, without the newline
# and one column (Boolean, Int64 or Float64, null where absent) for each number found:
#   field/NAME      a top-level number or truth value whose name does not start with `_`, `reward` included
#   usage/NAME      a number in `response.usage`
#   perf/NAME       a number in `ng_perf`
#   json/NAME       String, only for the fields that repair was told to take: whatever the field holds, as JSON
FIXED = ("task", "rollout", "attempt", "server", "agent", "masked", "reward", "offset", "length")
FIELD, USAGE, PERF, JSON = "field/", "usage/", "perf/", "json/"
