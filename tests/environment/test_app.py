"""The server over HTTP: what it says of itself, how it answers rows, how it passes on a model server's troubles."""

import asyncio
import socket

import aiohttp
import orjson
import pytest
import yaml
from aiohttp.test_utils import TestServer

from helpers.raw import raw_server, says
from rollmake.core.errors import DataError, InputError
from rollmake.core.metrics import aggregate_metrics
from rollmake.environment.app import create_app
from rollmake.environment.policy import api_key, open_policy
from rollmake.environment.rows import read_row
from rollmake.environment.settings import embedded_settings
from rollmake.environment.topology import AGENT, SERVER

KEY = "sk-very-secret-0123456789"
SCRIPTED = {"policy": "scripted", "latency_s": 0}


def asks(model, **more):
    return {"model": {"base_url": model.url, "name": "qa", **more}}


async def posted(client, row, path="/run"):
    async with client.post(path, data=orjson.dumps(row)) as reply:
        return reply.status, await reply.json(), reply.headers


@pytest.mark.parametrize("path", ["/", "/livez", "/readyz", "/healthz", "/health"])
async def test_health(serving, path):
    async with serving(SCRIPTED) as client, client.get(path) as reply:
        assert (reply.status, await reply.json()) == (200, {"status": "ok"})


async def test_the_topology_is_yaml_in_a_json_string_and_leads_here(serving, row):
    async with serving(SCRIPTED) as client:
        async with client.get("/global_config_dict_yaml") as reply:
            text = orjson.loads(await reply.read())
        block = yaml.safe_load(text)[SERVER]["environment_servers"]["legacy_agent"]
        assert (block["host"], block["port"]) == (client.host, client.port)
        async with client.get("/server_instances") as reply:
            instances = await reply.json()
        assert {entry["url"] for entry in instances} == {f"http://{client.host}:{client.port}"}
        assert AGENT in {entry["process_name"] for entry in instances}


async def test_on_all_interfaces_the_topology_names_the_one_that_was_asked():
    server = TestServer(create_app(embedded_settings(SCRIPTED)), host="0.0.0.0")
    async with server, aiohttp.ClientSession() as session:
        reply = await session.get(f"http://127.0.0.1:{server.port}/global_config_dict_yaml")
        topology = yaml.safe_load(await reply.json())
        assert topology["head_server"] == {"host": "127.0.0.1", "port": server.port}


async def test_a_row_is_answered_and_verified(serving, row):
    async with serving(SCRIPTED | {"error_rate": 0}) as client:
        status, reply, _ = await posted(client, row(subset="easy"))
    assert status == 200
    assert (reply["reward"], reply["mask_sample"], reply["extracted_answer"], reply["subset"]) == (
        1.0,
        False,
        "42",
        "easy",
    )
    assert reply["response"]["usage"]["total_tokens"] > 0
    assert not any(name.startswith("_ng_") or name == "agent_ref" for name in reply)


async def test_a_row_that_is_not_usable_is_refused_with_its_field(serving, row):
    async with serving(SCRIPTED) as client:
        status, reply, _ = await posted(client, row(verifier="vibes"))
        assert status == 422
        assert reply["detail"][0]["loc"] == ["body", "verifier"]
        async with client.post("/run", data=b"{") as answer:
            assert answer.status == 422
        async with client.get("/run") as answer:
            assert answer.status == 405


async def test_a_model_is_asked_through_responses(serving, row, model):
    params = {"temperature": 0.5, "metadata": {"extra_body": '{"seed": 3}', "note": "n"}}
    async with serving(asks(model)) as client:
        status, reply, _ = await posted(client, row(params))
    assert (status, reply["reward"], reply["response"]["id"]) == (200, 1.0, "r1")
    ((path, body, authorization),) = model.requests
    asked = [{"role": "user", "content": "What is 6 times 7?"}]
    assert (path, authorization) == ("/v1/responses", None)
    assert body == {"input": asked, "temperature": 0.5, "model": "qa", "metadata": {"note": "n"}, "seed": 3}


async def test_a_model_is_asked_through_chat(serving, row, model):
    async with serving(asks(model, api="chat"), key=KEY) as client:
        status, reply, _ = await posted(client, row({"max_output_tokens": 5}))
    assert (status, reply["reward"], reply["response"]["output"][0]["type"]) == (200, 1.0, "message")
    ((path, body, authorization),) = model.requests
    assert (path, authorization) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert body == {
        "model": "qa",
        "messages": [{"role": "user", "content": "What is 6 times 7?"}],
        "max_tokens": 5,
    }


async def test_a_row_that_a_chat_cannot_say_is_the_rows_fault(serving, row, model):
    async with serving(asks(model, api="chat")) as client:
        status, reply, _ = await posted(client, row({"previous_response_id": "r"}))
    assert (status, model.requests) == (422, [])
    assert reply["detail"][0]["loc"] == ["body", "responses_create_params", "previous_response_id"]


@pytest.mark.parametrize("status", [429, 502, 503, 504])
@pytest.mark.parametrize("api", ["responses", "chat"])
async def test_gateway_statuses_are_relayed(serving, row, model, status, api):
    model.reply = lambda path, body: (status, b"busy", {"Retry-After": "7"})
    async with serving(asks(model, api=api)) as client:
        found, reply, headers = await posted(client, row())
    assert (found, headers["Retry-After"]) == (status, "7")
    assert reply.endswith(f"status {status}: busy")


@pytest.mark.parametrize("status", [201, 301, 400, 401, 404, 418, 500])
async def test_other_statuses_are_a_500_that_quotes_them(serving, row, model, status):
    model.reply = lambda path, body: (status, ("x" * 1999 + "yz").encode(), {"Location": "/v1/chat/completions"})
    async with serving(asks(model)) as client:
        found, reply, headers = await posted(client, row())
    assert found == 500
    assert reply.endswith(f"status {status}: " + "x" * 1999 + "y")
    assert "Retry-After" not in headers
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    "content",
    [b"", b"<html>", b"[]", b"null", b'{"output": null}', b'{"choices": []}', b'{"output": [], "status": "failed"}'],
)
@pytest.mark.parametrize("api", ["responses", "chat"])
async def test_a_reply_that_holds_no_answer_is_a_500(serving, row, model, content, api):
    model.reply = lambda path, body: (200, content, {})
    async with serving(asks(model, api=api)) as client:
        found, reply, _ = await posted(client, row())
    assert found == 500
    assert f"is no {api} reply" in reply


async def test_an_answer_without_text_scores_0(serving, row, model):
    model.reply = lambda path, body: (200, {"output": []}, {})
    async with serving(asks(model)) as client:
        found, reply, _ = await posted(client, row())
    assert (found, reply["reward"], reply["extracted_answer"], reply["mask_sample"]) == (200, 0.0, None, False)


async def test_a_model_server_that_is_down_is_a_503(serving, row):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        block = {"model": {"base_url": f"http://127.0.0.1:{closed.getsockname()[1]}/v1", "name": "qa"}}
        async with serving(block) as client:
            found, reply, _ = await posted(client, row())
            assert [(await client.get(path)).status for path in ("/", "/livez", "/health", "/readyz")] == [
                200,
                200,
                503,
                503,
            ]
            closed.listen()
            assert (await client.get("/health")).status == 200
    assert found == 503
    assert "no connection to the model server at http://127.0.0.1" in reply


async def test_a_model_server_that_breaks_off_is_a_502(serving, row, model):
    model.reply = lambda path, body: (None, b"", {})
    async with serving(asks(model)) as client:
        found, reply, _ = await posted(client, row())
    assert (found, len(model.requests)) == (502, 1)
    assert "broke the connection" in reply


async def test_a_reply_of_a_model_server_that_breaks_off_is_a_500(serving, row):
    reply = says(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{"\r\n', b"no chunk\r\n")
    async with raw_server(reply) as url, serving({"model": {"base_url": f"{url}/v1", "name": "qa"}}) as client:
        found, text, _ = await asyncio.wait_for(posted(client, row()), 10)
    assert found == 500
    assert "broke off" in text


async def test_the_key_goes_to_the_model_server_and_nowhere_else(serving, row, model, tmp_path, capfd, response_reply):
    replies = iter(
        [(401, f"bad key {KEY}".encode()), (429, KEY.encode()), (200, response_reply(KEY)), (200, KEY.encode())]
    )
    model.reply = lambda path, body: (*next(replies), {})
    log, seen = tmp_path / "requests.jsonl", []
    async with serving(asks(model, api_key_env="QA_KEY"), key=KEY, request_log=log) as client:
        for _ in range(4):
            seen.append(await posted(client, row()))
        for path in ("/global_config_dict_yaml", "/server_instances"):
            async with client.get(path) as reply:
                seen.append(await reply.text())
    assert [authorization for _, _, authorization in model.requests] == [f"Bearer {KEY}"] * 4
    assert [entry[0] for entry in seen[:4]] == [500, 429, 200, 500]
    assert KEY not in str(seen) + log.read_text() + "".join(capfd.readouterr())
    assert "bad key ***" in seen[0][1]


async def test_a_placeholder_key_does_not_blot_answers(serving, row, model, response_reply):
    model.reply = lambda path, body: (200, response_reply("the set is EMPTY, so 42"), {})
    async with serving(asks(model, api_key_env="QA_KEY"), key="EMPTY") as client:
        _, reply, _ = await posted(client, row())
    assert reply["response"]["output"][0]["content"][0]["text"] == "the set is EMPTY, so 42"


def test_the_key_comes_from_the_named_variable():
    model = embedded_settings({"model": {"base_url": "http://h/v1", "name": "m", "api_key_env": "QA_KEY"}}).model
    assert api_key(model, {"QA_KEY": KEY, "OPENAI_API_KEY": "other"}) == KEY
    without = embedded_settings({"model": {"base_url": "http://h/v1", "name": "m"}}).model
    assert api_key(without, {"OPENAI_API_KEY": "other"}) is None
    for environ in ({}, {"QA_KEY": ""}):
        with pytest.raises(InputError, match="QA_KEY is not set"):
            api_key(model, environ)


async def test_a_fault_of_our_own_is_a_500_with_a_json_string(serving, row, monkeypatch, capfd):
    def fail(*_):
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr("rollmake.environment.app.result", fail)
    async with serving(SCRIPTED) as client:
        assert (await posted(client, row()))[:2] == (500, "ZeroDivisionError: a fault")
    assert "Traceback" in capfd.readouterr().err


async def test_metrics_are_those_of_the_core(serving):
    rows = [
        {"_ng_task_index": 0, "_ng_rollout_index": i, "reward": float(i), "response": {"usage": {"output_tokens": 5}}}
        for i in range(3)
    ]
    async with serving(SCRIPTED) as client:
        status, reply, _ = await posted(client, {"verify_responses": rows}, "/aggregate_metrics")
    assert status == 200
    assert reply == orjson.loads(orjson.dumps(aggregate_metrics(rows)))
    assert reply["agent_metrics"]["mean/reward"] == 1.0


async def test_metrics_that_cannot_be_computed_are_a_500(serving, capfd):
    row = {"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0}
    async with serving(SCRIPTED) as client:
        status, reply, _ = await posted(client, {"verify_responses": [row, row]}, "/aggregate_metrics")
        assert status == 500
        assert isinstance(reply, str)
        for body in ({}, {"verify_responses": {}}, {"verify_responses": [1]}):
            assert (await posted(client, body, "/aggregate_metrics"))[0] == 422


async def test_metrics_that_the_core_refuses_are_a_500_without_a_traceback(serving, monkeypatch, capfd):
    def refuse(rows):
        raise DataError("too odd", where="x")

    monkeypatch.setattr("rollmake.environment.app.aggregate_metrics", refuse)
    async with serving(SCRIPTED) as client:
        assert (await posted(client, {"verify_responses": []}, "/aggregate_metrics"))[:2] == (500, "x: too odd")
    assert "Traceback" not in capfd.readouterr().err


async def test_a_large_row_is_taken(serving, row):
    async with serving(SCRIPTED | {"error_rate": 0}) as client:
        status, reply, _ = await posted(client, row(filler="x" * (24 << 20)))
    assert (status, reply["reward"], len(reply["filler"])) == (200, 1.0, 24 << 20)


async def test_thousand_requests_wait_side_by_side(serving, row):
    unlimited = aiohttp.TCPConnector(limit=0)
    async with (
        serving(SCRIPTED | {"latency_s": 0.2}) as client,
        aiohttp.ClientSession(client.make_url("/"), connector=unlimited) as session,
    ):
        started = asyncio.get_running_loop().time()
        replies = await asyncio.gather(*(posted(session, row(_ng_rollout_index=index)) for index in range(1000)))
        took = asyncio.get_running_loop().time() - started
    assert {status for status, _, _ in replies} == {200}
    assert len({reply["response"]["id"] for _, reply, _ in replies}) == 1000
    # One after the other they would take 200 s.
    assert took < 60


async def test_every_request_is_logged_when_it_arrives_and_before_it_is_answered(serving, row, model, tmp_path):
    path = tmp_path / "requests.jsonl"

    def logged():
        return [orjson.loads(line) for line in path.read_bytes().splitlines()]

    def reply(path, body):
        assert [line["event"] for line in logged()] == ["arrived"]
        return 400, b"no", {}

    model.reply = reply
    async with serving(asks(model), request_log=path) as client:
        assert (await posted(client, row(_ng_attempt_index=2)))[1].endswith("status 400: no")
        arrived, answered = logged()
        async with client.post("/run", data=b"{"):
            assert [(line["request"], line["status"]) for line in logged()[2:]] == [(2, None), (2, 422)]
    assert {"request": 1, "task": 3, "rollout": 1, "attempt": 2}.items() <= arrived.items()
    assert answered == arrived | {"event": "answered", "status": 500, "time": answered["time"]}


async def test_the_policy_closes_its_connections(model, row):
    async with open_policy(embedded_settings(asks(model)), None) as policy:
        assert (await policy(read_row(row())))["id"] == "r1"
    with pytest.raises(RuntimeError, match="closed"):
        await policy(read_row(row()))
