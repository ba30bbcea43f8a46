"""Names of shards and the dealing of tasks to them."""

import re

NAME = re.compile(r"(\d{4,})-of-(\d{4,})")


def shard_name(index: int, count: int) -> str:
    """`shard_name(3, 16)` is `0003-of-0016`; indices start at 0."""
    return f"{index:04d}-of-{count:04d}"


def shard_names(count: int) -> list[str]:
    """The names of all shards of a run, in order."""
    return [shard_name(index, count) for index in range(count)]


def parse_shard(name: str) -> tuple[int, int]:
    """The index and count in a shard's name. Raises ValueError for anything that `shard_name` does not write."""
    match = NAME.fullmatch(name)
    if not match or not int(match[1]) < int(match[2]) or shard_name(int(match[1]), int(match[2])) != name:
        raise ValueError(f"{name!r} is no shard; shards are called like 0003-of-0016, counted from 0")
    return int(match[1]), int(match[2])
