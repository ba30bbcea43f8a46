"""`run_examples` against servers on loopback."""

import asyncio
import base64
import inspect
import json
import re
import subprocess
import sys
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

import rollmake
from helpers import chaos
from helpers.servers import TESTS, chaos_server
from rollmake.core.config import stage_options
from rollmake.core.errors import InputError, Problems, ServerError
from rollmake.edge.settings import schema

FAILURE = {f"_ng_failure_{name}" for name in ("class", "type", "message", "http_status", "response_body")}
DEMO = {"embedded": {"policy": "scripted", "latency_s": 0, "error_rate": 0}}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with chaos_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def rows(request):
    """Makes rows, one for each list of words, that the log knows again by the name of the test."""
    salt = request.node.name

    def make(*behaves, **options):
        examples = [chaos.row(behave, number, salt=salt) for number, behave in enumerate(behaves)]
        return rollmake.preprocess_examples(examples, **options)

    make.salt = salt
    return make


def asked(server, rows):
    """The tasks of the test's rows that arrived, in order."""
    return [e["task"] for e in server.log() if e["event"] == "arrived" and e["salt"] == rows.salt]


def answered(server, rows):
    """The bodies that the test's rows were answered with, by task and rollout."""
    return {
        (e["task"], e["rollout"]): json.loads(base64.b64decode(e["body"]))
        for e in server.log()
        if e["event"] == "answered" and e["salt"] == rows.salt
    }


async def all_of(rows, **options):
    return [rollout async for rollout in rollmake.run_examples(rows, **options)]


async def test_replies_come_as_the_server_gave_them_with_the_latency_beside_them(server, rows):
    given = rows([], ["masked"], ["reserved"], ["no_persist"], ["class:judge_failed"], ["terminal"], num_repeats=3)
    before = json.dumps(given)
    rollouts = await all_of(given, head_server=server.address, num_samples_in_parallel=5)
    assert sorted(id(row) for row, _ in rollouts) == sorted(map(id, given))
    assert json.dumps(given) == before
    bodies = answered(server, rows)
    for rollout in rollouts:
        assert rollout.result == bodies[rollout.row["_ng_task_index"], rollout.row["_ng_rollout_index"]]
        assert rollout.latency_s > 0
        assert rollout.server == chaos.SERVER
    plain = [result for row, result in rollouts if row["behave"] == []]
    assert [key for result in plain for key in result if key.startswith(("_ng_", "ng_"))] == []


async def test_rows_are_sent_in_the_order_given(server, rows):
    given = rows(*[[]] * 10)[::-1]
    await all_of(given, head_server=server.address, num_samples_in_parallel=1)
    assert asked(server, rows) == list(range(10))[::-1]


async def test_failures_come_as_rows_with_routing(server, rows):
    words = ["500", "404", "reset", "cut", "garbage", "nan", "list", "empty", "503"]
    given = rows(*[[word] for word in words])
    options = {"route_failures_to_sidecar": True, "gateway_retries": 1}
    rollouts = await all_of(given, head_server=server.address, **options)
    assert all(rollout.result.keys() == FAILURE for rollout in rollouts)
    found = {rollout.row["behave"][0]: rollout.result for rollout in rollouts}
    assert {word for word in words if found[word]["_ng_failure_class"] == "agent_request_failed"} == {"reset", "503"}
    assert found["500"]["_ng_failure_http_status"] == 500
    assert found["500"]["_ng_failure_response_body"] == '"status 500"'
    assert sorted(asked(server, rows)) == sorted([*range(9), 8])


async def test_without_routing_the_first_failure_is_raised(server, rows):
    given = rows([], [], ["500"], [], [])
    seen = []

    async def consume():
        async for row, _ in rollmake.run_examples(given, head_server=server.address, num_samples_in_parallel=1):
            seen.append(row)

    place = re.escape("rows[2] (task 2, rollout 0): ")
    with pytest.raises(
        rollmake.RolloutError, match=rf'^{place}.* 500 \("status 500"\) from {server.address}'
    ) as refusal:
        await consume()
    assert seen == given[:2]
    assert refusal.value.row is given[2]
    assert (refusal.value.failure_class, refusal.value.status) == ("agent_run_error", 500)
    assert refusal.value.body == '"status 500"'
    assert asked(server, rows) == [0, 1, 2]


@pytest.mark.parametrize(
    ("word", "option", "kind"),
    [
        ("huge", {"max_response_bytes": 100_000}, "ResponseTooLarge"),
        ("slow:60", {"rollout_timeout_s": 0.1}, "TimeoutError"),
    ],
)
async def test_limits_of_a_rollout_are_kept(server, rows, word, option, kind):
    [(_, result)] = await all_of(rows([word]), head_server=server.address, route_failures_to_sidecar=True, **option)
    assert result["_ng_failure_type"] == kind


async def test_few_rows_do_not_wait_for_the_many_requests_that_would_be_allowed(server, rows, monkeypatch):
    monkeypatch.setattr("rollmake.edge.engine.RAMP", 2)
    monkeypatch.setattr("rollmake.edge.engine.RAMP_S", 3600)
    assert len(await all_of(rows([], []), head_server=server.address, num_samples_in_parallel=64)) == 2
    assert await all_of([], head_server=server.address, num_samples_in_parallel=64) == []


async def test_a_spent_budget_sends_nothing(server, rows):
    rollouts = await all_of(rows([], []), head_server=server.address, dispatch_budget_s=0)
    assert [rollout.result["_ng_failure_class"] for rollout in rollouts] == ["cancelled"] * 2
    assert asked(server, rows) == []


async def test_a_list_is_checked_in_whole_before_anything_is_sent(server, rows):
    given = rows([], [], [], [], [], [], [])
    given[1]["agent_ref"] = given[2]["agent_ref"] = {"name": "nobody"}
    given[3]["agent_ref"] = "chaos_agent"
    del given[4]["agent_ref"]
    given[5]["_ng_environment_server"] = "elsewhere"
    given[6]["field"] = float("nan")
    with pytest.raises(Problems) as refusal:
        await all_of([*given, "text"], head_server=server.address)
    told = str(refusal.value)
    for text in (
        "rows[1], rows[2]: agent 'nobody' is not in the environment",
        "rows[3]: agent_ref is 'chaos_agent'",
        "rows[4]: names nobody who answers it",
        "rows[5]: environment server 'elsewhere' is not in the environment",
        "rows[6]: has no JSON",
        "rows[7]: is str, not a dict",
    ):
        assert text in told
    assert len(refusal.value.problems) == 6
    assert asked(server, rows) == []


async def test_pairings_and_addresses_are_checked_and_pairings_can_be_allowed(server, rows, monkeypatch):
    monkeypatch.delenv("NEMO_GYM_ALLOW_UNSUPPORTED_PAIRING", raising=False)
    host, port = server.address.removeprefix("http://").split(":")
    servers = chaos.topology(host, int(port))
    servers["chaos_resources"]["resources_servers"]["chaos"]["allowed_agents"] = ["other_agent"]
    given = rows([])
    with pytest.raises(InputError, match=r"rows\[0\]: 'chaos_resources' accepts other_agent only"):
        await all_of(given, topology=servers)
    assert len(await all_of(given, topology=servers, allow_unsupported_pairing=True)) == 1
    monkeypatch.setenv("NEMO_GYM_ALLOW_UNSUPPORTED_PAIRING", "1")
    assert len(await all_of(given, topology=servers)) == 1
    servers[chaos.SERVER]["environment_servers"]["legacy_agent"]["port"] = "${port}"
    with pytest.raises(InputError, match=f"no address is known of environment server '{chaos.SERVER}'"):
        await all_of(given, topology=servers)


async def test_the_servers_are_named_in_three_ways(server, rows, tmp_path):
    host, port = server.address.removeprefix("http://").split(":")
    servers = chaos.topology(host, int(port))
    path = tmp_path / "servers.yaml"
    path.write_text(json.dumps(servers))
    for where in (
        {"head_server": server.address},
        {"topology": servers},
        {"topology": path},
        {"topology": str(path)},
        {"environment": {"head_server": server.address}},
        {"environment": {"topology": str(path)}},
    ):
        [(_, result)] = await all_of(rows([]), **where)
        assert result["reward"] == 0.0


def children():
    """The processes that this one started and that still run."""
    return {pid for listed in Path("/proc/self/task").glob("*/children") for pid in listed.read_text().split()}


async def test_the_embedded_environment_runs_for_the_call_and_no_longer():
    before = children()
    answer = {"verifier": "exact", "expected_answer": "4"}
    example = {
        "responses_create_params": {"input": "2+2?"},
        "agent_ref": {"name": "question_answering_agent"},
        **answer,
    }
    rollouts = await all_of(rollmake.preprocess_examples([example], num_repeats=2), environment=DEMO)
    assert [rollout.result["reward"] for rollout in rollouts] == [1.0, 1.0]
    assert children() == before
    async with aclosing(rollmake.run_examples([example] * 2, environment=DEMO, num_samples_in_parallel=1)) as stopped:
        await anext(stopped)
        assert children() > before
    assert children() == before


async def test_what_is_being_started_when_the_call_is_given_up_is_stopped():
    before = children()
    first = asyncio.create_task(anext(rollmake.run_examples([], environment=DEMO)))
    while children() == before:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert first.cancelled()
    assert children() == before


class Counted:
    """An iterator that knows how many rows it has."""

    def __init__(self, rows):
        self.rows = list(rows)

    def __len__(self):
        return len(self.rows)

    def __iter__(self):
        return self

    def __next__(self):
        if not self.rows:
            raise StopIteration
        return self.rows.pop(0)


async def test_an_iterator_is_not_used_up_by_the_checks(server, rows):
    given = rows([], [], [])
    for iterator in (iter(given), Counted(given), (row for row in given)):
        assert len(await all_of(iterator, head_server=server.address)) == 3


async def test_a_task_source_is_resolved_for_what_is_sent_and_the_row_stays(server):
    example = {**chaos.row(), "task_source": "chaos_resources", "_ng_task_index": 0, "_ng_rollout_index": 0}
    del example["agent_ref"]
    before = dict(example)
    [(row, result)] = await all_of([example], head_server=server.address)
    assert row is example
    assert row == before
    assert result["reward"] == 0.0


@asynccontextmanager
async def loopback(run):
    """The topology of an environment server `ep` that answers POST /run with what `run` makes of the body."""
    bodies = []

    async def answer(request):
        bodies.append(await request.json())
        return web.json_response(run(bodies[-1]))

    app = web.Application()
    app.router.add_post("/run", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        block = {"host": "127.0.0.1", "port": site._server.sockets[0].getsockname()[1]}
        yield {"ep": {"environment_servers": {"typed": block}}}, bodies
    finally:
        await runner.cleanup()


def episode(body):
    task = body["task"]
    ids = {"episode_id": body["episode_id"], "task_id": task["task_id"]}
    if task["task_input"]["end"] == "failure":
        return {**ids, "result": None, "failure": {"failure_reason": "late", "terminal": True, "stage": "agent"}}
    if task["task_input"]["end"] == "reserved":
        return {**ids, "result": {"_ng_x": 1}, "failure": None}
    return {**ids, "result": {"reward": 0.5}, "failure": None}


def typed_row(end, **fields):
    identity = {"task_id": {"taskset": "env:t", "task_id": "1"}, "task_input": {"end": end}}
    return {**identity, "_ng_environment_server": "ep", **fields}


async def test_typed_rows_are_sent_as_episodes_and_come_back_as_their_results():
    rows = [
        typed_row("result", _ng_task_index=3, _ng_rollout_index=1),
        typed_row("failure", _ng_rollout_id="x", _ng_attempt_index=2),
        typed_row("reserved", _ng_rollout_id="y"),
    ]
    async with loopback(episode) as (topology, bodies):
        options = {"num_samples_in_parallel": 1, "route_failures_to_sidecar": True}
        done, failed, unusable = await all_of(rows, topology=topology, **options)
    task = {"task_id": {"taskset": "env:t", "task_id": "1"}, "task_input": {"end": "result"}}
    assert bodies[0] == {"episode_id": {"rollout_id": "3-1", "attempt": 0}, "task": task}
    assert bodies[1]["episode_id"] == {"rollout_id": "x", "attempt": 2}
    assert done.result == {"reward": 0.5}
    assert failed.result == {
        "_ng_failure_class": "environment_server_failed",
        "_ng_failure_terminal": True,
        "_ng_failure_message": "late",
        "_ng_failure_stage": "agent",
    }
    assert unusable.result.keys() == FAILURE
    assert "_ng_x" in unusable.result["_ng_failure_message"]


async def test_typed_rows_need_a_server_and_a_name():
    nameless, homeless = typed_row("result"), typed_row("result", _ng_rollout_id="x")
    del homeless["_ng_environment_server"]
    async with loopback(episode) as (topology, bodies):
        with pytest.raises(Problems) as refusal:
            await all_of([nameless, homeless], topology=topology)
    assert "rows[0]: has nothing that would name its episode" in str(refusal.value)
    assert "rows[1]: names nobody who answers it. Write _ng_environment_server" in str(refusal.value)
    assert bodies == []


async def test_a_head_server_that_is_not_there_is_waited_for_no_longer_than_the_patience():
    with pytest.raises(ServerError, match=r"http://127\.0\.0\.1:1.*waited 0\.1 s for it"):
        await all_of([], head_server="http://127.0.0.1:1", outage_patience_s=0.1)


async def test_an_environment_server_that_is_not_there_fails_its_rows():
    given = [chaos.row(_ng_task_index=0, _ng_rollout_index=0)]
    options = {"outage_patience_s": 0.01, "route_failures_to_sidecar": True}
    [rollout] = await all_of(given, topology=chaos.topology("127.0.0.1", 1), **options)
    assert rollout.result["_ng_failure_class"] == "agent_request_failed"
    assert "http://127.0.0.1:1 did not answer" in rollout.result["_ng_failure_message"]


async def test_closing_ends_every_request_and_task(server, rows):
    before = asyncio.all_tasks()
    given = rows([], *[["slow:60"]] * 5)
    async with aclosing(rollmake.run_examples(given, head_server=server.address)) as rollouts:
        assert (await anext(rollouts)).row is given[0]
        assert asyncio.all_tasks() > before
    assert asyncio.all_tasks() == before


STOPPING = """
import asyncio, sys
import rollmake
from helpers.chaos import row

rows = [row(["slow:60"] if n % 2 else [], n, _ng_task_index=n, _ng_rollout_index=0) for n in range(20)]

async def take_one():
    async for rollout in rollmake.run_examples(rows, head_server=sys.argv[1], num_samples_in_parallel=4):
        if sys.argv[2] == "raise":
            raise KeyError("mine")
        if sys.argv[2] == "cancel":
            asyncio.current_task().cancel()
        elif sys.argv[2] == "break":
            break

async def main():
    try:
        await take_one()
    except (KeyError, asyncio.CancelledError) as error:
        print(type(error).__name__)

asyncio.run(main(), debug=False)
"""


@pytest.mark.parametrize(("how", "printed"), [("break", ""), ("raise", "KeyError"), ("cancel", "CancelledError")])
def test_stopping_early_leaves_no_warning_behind(server, how, printed):
    command = [sys.executable, "-X", "dev", "-W", "always", "-c", STOPPING, server.address, how]
    ended = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=50, check=False)
    assert (ended.stdout.strip(), ended.stderr, ended.returncode) == (printed, "", 0)


def test_importing_the_package_does_not_import_the_library():
    code = "import sys, rollmake; print(sorted({'aiohttp', 'msgspec', 'numpy', 'rollmake.library'} & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", code], cwd=TESTS, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "exactly one of head_server, topology, environment is needed, not none"),
        ({"head_server": "http://h:1", "topology": {}}, "not head_server and topology"),
        ({"head_server": "h:1"}, "environment.head_server: "),
        ({"environment": {"policy": 1}}, "environment: unknown key 'policy'"),
        ({"head_server": "http://h:1", "num_samples_in_parallel": 0}, "num_samples_in_parallel: 0 is less than"),
        ({"head_server": "http://h:1", "max_resident_rollout_tasks": 0}, "max_resident_rollout_tasks: 0"),
        ({"head_server": "http://h:1", "dispatch_budget_s": -1}, "dispatch_budget_s: -1"),
        ({"head_server": "http://h:1", "dispatch_budget_s": "auto"}, "dispatch_budget_s: there is no job"),
        ({"head_server": "http://h:1", "rollout_timeout_s": "1"}, "rollout_timeout_s: '1'"),
    ],
)
def test_options_are_checked_at_the_call(options, message):
    with pytest.raises(InputError) as refusal:
        rollmake.run_examples([], **options)
    assert message in str(refusal.value)


def test_defaults_are_those_of_the_config_but_for_two():
    documented = {**stage_options(schema("config"), "materialize"), **stage_options(schema("config"), "collect")}
    given = inspect.signature(rollmake.run_examples).parameters
    own = {"rows", "head_server", "topology", "environment"}
    differing = {n: p.default for n, p in given.items() if n not in own and p.default != documented[n]["default"]}
    assert differing == {"route_failures_to_sidecar": False, "dispatch_budget_s": None}
