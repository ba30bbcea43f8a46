"""A plan is read only beside the rows that it is about."""

import itertools

import msgspec
import numpy as np
import pytest

from rollmake.core.contract import MATERIALIZED_NAME
from rollmake.core.errors import DataError, InputError
from rollmake.core.expand import Copies
from rollmake.core.planning import Planner
from rollmake.edge.plan import REMEDY, ShardRows, read_plan, read_shard, scan_table, table_path
from rollmake.edge.plan_table import write_table


@pytest.fixture
def plan(tmp_path):
    """A plan of three tasks, two rollouts each, in two shards."""
    planner = Planner(2, "")
    lines = [planner.add(Copies(b'{"task":%d}' % task, task, 0, 2, "server", None)) for task in range(3)]
    columns = planner.columns(None)
    path = tmp_path / "plan.json"
    (tmp_path / MATERIALIZED_NAME).write_bytes(b"".join(lines))
    with table_path(path).open("wb") as file:
        write_table(file, columns, list(planner.names))
    path.write_bytes(msgspec.json.encode(planner.plan(columns)))
    return path


def test_a_shard_has_its_rows(plan):
    table = read_shard(plan, "0000-of-0002")
    assert table["task"].to_list() == [0, 0, 2, 2]
    with ShardRows(table, plan.with_name(MATERIALIZED_NAME)) as rows:
        assert [msgspec.json.decode(rows.line(position))["task"] for position in range(len(rows))] == [0, 0, 2, 2]
        assert rows.server(3) == "server"
        assert rows.servers == {"server"}


@pytest.mark.parametrize(("change", "size"), [(b"{}\n", 3), (b"", 0), (b"x" * 1000, 1000)])
def test_rows_of_another_plan_are_refused_with_both_sizes(plan, change, size):
    rows = plan.with_name(MATERIALIZED_NAME)
    own = rows.stat().st_size
    rows.write_bytes(change)
    with pytest.raises(DataError) as refusal:
        read_shard(plan, "0000-of-0002")
    assert str(refusal.value) == (f"{rows}: the file has {size} bytes, but its plan is about {own}. {REMEDY}")


def test_rows_that_are_not_there_are_refused(plan):
    plan.with_name(MATERIALIZED_NAME).unlink()
    with pytest.raises(
        DataError, match=rf"{MATERIALIZED_NAME}: there are no materialized rows\. Run the stage materialize"
    ):
        read_shard(plan, "0000-of-0002")


@pytest.mark.parametrize("ahead", [1, 7, 40, 1 << 18])
def test_rows_are_the_same_in_whatever_order_they_are_read(plan, ahead):
    table = read_shard(plan, "0000-of-0002")
    with ShardRows(table, plan.with_name(MATERIALIZED_NAME), ahead) as rows:
        for order in itertools.product(range(4), repeat=4):
            assert [msgspec.json.decode(rows.line(p))["task"] for p in order] == [[0, 0, 2, 2][p] for p in order]
            assert [msgspec.json.decode(rows.line(p))["_ng_rollout_index"] for p in order] == [p % 2 for p in order]


def test_a_file_that_shrinks_while_it_is_read_is_refused(plan):
    rows = plan.with_name(MATERIALIZED_NAME)
    table = read_shard(plan, "0001-of-0002")
    with ShardRows(table, rows) as shard:
        rows.write_bytes(b"{}\n")
        with pytest.raises(DataError, match="shorter than its plan says"):
            shard.line(0)


@pytest.mark.parametrize("shard", ["0000-of-0003", "2-of-2", "first"])
def test_only_shards_of_the_plan_can_be_read(plan, shard):
    with pytest.raises(InputError):
        read_shard(plan, shard)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{", "this is no plan"), (b"[]", "this is no plan"), (None, "there is no plan")],
)
def test_a_plan_that_is_none_is_refused(plan, content, message):
    plan.unlink()
    if content is not None:
        plan.write_bytes(content)
    with pytest.raises(DataError, match=rf"plan\.json: {message}.*Run the stage materialize again"):
        read_plan(plan)


def test_a_plan_of_another_version_is_refused(plan):
    plan.write_bytes(msgspec.json.encode(msgspec.structs.replace(read_plan(plan), version=2)))
    with pytest.raises(DataError, match="version 2, known is 1"):
        read_plan(plan)


def test_a_plan_without_rollouts_has_empty_shards(plan):
    planner = Planner(1, "")
    columns = planner.columns(np.empty(0, dtype=np.int64))
    with table_path(plan).open("wb") as file:
        write_table(file, columns, [])
    plan.write_bytes(msgspec.json.encode(planner.plan(columns)))
    plan.with_name(MATERIALIZED_NAME).write_bytes(b"")
    assert read_shard(plan, "0000-of-0001").height == 0


def test_a_table_that_is_gone_is_told_with_what_to_run(tmp_path):
    with pytest.raises(
        DataError, match=r"plan\.parquet: there is no table of the plan\. Run the stage materialize again"
    ):
        scan_table(tmp_path / "plan.json")
