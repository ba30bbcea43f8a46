"""Shards on disk for the tests of repair, fsck and concatenate."""

import base64
import json

import orjson


def row(task=0, rollout=0, **fields):
    """One record as a line without its newline."""
    return orjson.dumps({"_ng_task_index": task, "_ng_rollout_index": rollout, **fields})


def write_shard(folder, rollouts=b"", failures=None, materialized=None, stem="rollouts"):
    """Write the files of a shard, given as bytes, None for no file; the path of the rollouts."""
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, content in (("", rollouts), ("_failures", failures), ("_materialized_inputs", materialized)):
        if content is not None:
            (folder / f"{stem}{suffix}.jsonl").write_bytes(content)
    return folder / f"{stem}.jsonl"


def lines(*rows):
    """Rows as the content of a file."""
    return b"".join(one + b"\n" for one in rows)


def quarantined(folder):
    """The parts in quarantine.jsonl as (file, line, offset, reason, bytes)."""
    parts = map(json.loads, (folder / "quarantine.jsonl").read_bytes().split(b"\n")[:-1])
    return [(p["file"], p["line"], p["offset"], p["reason"], _content(p)) for p in parts]


def _content(part):
    return part["text"].encode() if "text" in part else base64.b64decode(part["base64"], validate=True)


def what_is_left(content, file, parts):
    """The lines of a file's content, stripped and sorted, without the parts in quarantine, which are where they say."""
    rest = bytearray(content)
    for name, line, offset, _, part in parts:
        if name == file:
            assert content[offset : offset + len(part)] == part
            assert content[:offset].count(b"\n") == line - 1
            rest[offset : offset + len(part)] = b" " * len(part)
    return sorted(one.strip() for one in bytes(rest).split(b"\n") if one.strip())
