"""The plan of a run: which rollouts are owed, in which shard, and the proof that each is there once."""

from functools import lru_cache
from hashlib import blake2b

import msgspec

PLAN_VERSION = 1

# plan.parquet, one line per rollout in the order of the materialized file:
#   task, rollout   Int64   the key
#   shard           Int32   index of the shard that collects it
#   offset, length  Int64   byte range of its line in the materialized file, without the newline
#   digest          Binary  16 bytes: the content of the row without its indices (`row_digest`)
#   repeat          Int32   how many rows of the same digest stand before it in the plan
#   server          String  the environment server that answers it, or null
#   agent           String  the name in its agent_ref, or null
COLUMNS = ("task", "rollout", "shard", "offset", "length", "digest", "repeat", "server", "agent")


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """plan.json: a few lines whatever the number of shards. It changes if and only if what is owed changes."""

    version: int
    shards: int
    tasks: int
    rollouts: int
    materialized_bytes: int
    # Over (task, rollout, shard, digest, server) of every line, in order; 32 hexadecimal digits.
    digest: str
    # What a result depends on beside the rows: the policy of an embedded environment. It is part of every row's digest.
    environment: str
    # Whether it is what rows that something else collected say of themselves, rather than what was asked of them.
    adopted: bool = False


def row_digest(row: bytes, environment: str) -> bytes:
    """16 bytes for the content of a row, given as compact JSON without its indices, in an environment of that identity."""
    digest = seeded(environment).copy()
    digest.update(row)
    return digest.digest()


@lru_cache
def seeded(environment: str) -> blake2b:
    """A hash that has taken in the identity of an environment, whatever its length."""
    return blake2b(digest_size=16, key=blake2b(environment.encode(), digest_size=32).digest())
