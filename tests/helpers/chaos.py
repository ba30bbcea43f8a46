"""An environment server that misbehaves as each row tells it to, and keeps a log of every request and reply.

`python -m helpers.chaos ADDRESS_FILE LOG` writes its address to ADDRESS_FILE. A row's `behave` is a list with one word an
attempt (`ok` once it is used up):
`ok`, `slow:SECONDS`, a status like `500` or `503`, `class:NAME`, `terminal`, `late`, `no_persist`,
`reset`, `cut`, `misframed`, `garbage`, `nan`, `list`, `empty`, `text`, `null`, `masked`, `huge`, `newline`,
`reserved`, `duplicate`.
Words joined by `+` are done one after the other: `slow:0.1+500`.
Log lines: {"event": "arrived" or "answered", "task", "rollout", "attempt", "salt" (of the row), "word", "body" (of what
was answered in whole)}.
"""

import asyncio
import base64
import json
import sys
from pathlib import Path

from aiohttp import web

AGENT, SERVER = "chaos_agent", "chaos_server"


def topology(host, port):
    where = {"entrypoint": "app.py", "host": host, "port": port}
    resources = {"type": "resources_servers", "name": "chaos_resources"}
    agent = {"type": "responses_api_agents", "name": AGENT}
    return {
        "chaos_resources": {"resources_servers": {"chaos": dict(where)}},
        AGENT: {"responses_api_agents": {"simple_agent": {**where, "resources_server": resources}}},
        SERVER: {"environment_servers": {"legacy_agent": {**where, "agent_server": agent}}},
        "policy_api_key": "secret-of-the-head-server",
    }


def row(behave=(), number=0, **more):
    """An input row for this server."""
    params = {"input": [{"role": "user", "content": f"question {number}"}]}
    return {"responses_create_params": params, "agent_ref": {"name": AGENT}, "behave": list(behave), **more}


def reward(task, rollout):
    return (task * 7 + rollout * 3) % 5 / 4


def reply(request_row):
    task, rollout = request_row["_ng_task_index"], request_row["_ng_rollout_index"]
    output = [
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": f"answer {task} {rollout} é\u2028"}],
        }
    ]
    return {
        "responses_create_params": request_row["responses_create_params"],
        "response": {
            "id": f"r-{task}-{rollout}",
            "output": output,
            "usage": {"input_tokens": 3, "output_tokens": task + 1},
        },
        "reward": reward(task, rollout),
        "mask_sample": False,
    }


# How a word changes the reply: a function of the reply to the bytes that are sent with status 200.
BODIES = {
    "ok": json.dumps,
    "garbage": lambda reply: "<html>proxy\n</html>",
    "nan": lambda reply: json.dumps({**reply, "reward": float("nan")}),
    "list": lambda reply: json.dumps([reply]),
    "empty": lambda reply: "",
    "text": lambda reply: json.dumps({**reply, "reward": "high"}),
    "null": lambda reply: json.dumps({**reply, "reward": None}),
    "masked": lambda reply: json.dumps({**reply, "mask_sample": True}),
    "huge": lambda reply: json.dumps({**reply, "padding": "x" * 3_000_000}),
    "newline": lambda reply: json.dumps(reply, indent=2, ensure_ascii=False),
    "reserved": lambda reply: json.dumps({"_ng_task_index": 999, **reply, "agent_ref": None}),
    "duplicate": lambda reply: json.dumps(reply)[:-1] + ', "mask_sample": false}',
    "no_persist": lambda reply: json.dumps({**reply, "_ng_no_persist": True}),
    "terminal": lambda reply: json.dumps({"_ng_failure_class": "given_up", "_ng_failure_terminal": True}),
    "late": lambda reply: json.dumps({"_ng_failure_class": "timeout_exceeded", "_ng_failure_terminal": True}),
}


class Chaos:
    def __init__(self, log):
        self.log = log

    def note(self, event, row, word, body=None):
        key = {
            "task": row["_ng_task_index"],
            "rollout": row["_ng_rollout_index"],
            "attempt": row.get("_ng_attempt_index", 0),
        }
        key["salt"] = row.get("salt")
        encoded = {} if body is None else {"body": base64.b64encode(body).decode()}
        self.log.write(json.dumps({"event": event, **key, "word": word, **encoded}) + "\n")
        self.log.flush()

    async def run(self, request):
        row = await request.json()
        behave = row.get("behave") or []
        attempt = row.get("_ng_attempt_index", 0)
        word = behave[attempt] if attempt < len(behave) else "ok"
        self.note("arrived", row, word)
        *waits, word = word.split("+") if not word.startswith("slow:") or "+" in word else [word, "ok"]
        for wait in waits:
            await asyncio.sleep(float(wait.removeprefix("slow:")))
        return await self.answer(request, row, word)

    async def answer(self, request, row, word):
        if word == "reset":
            request.transport.abort()
            return web.Response()
        if word == "cut":
            response = web.StreamResponse(headers={"Content-Length": "1000"})
            await response.prepare(request)
            await response.write(b'{"reward": 1')
            request.transport.close()
            return response
        if word == "misframed":
            response = web.StreamResponse()
            response.enable_chunked_encoding()
            await response.prepare(request)
            await response.write(b'{"reward": 1')
            await asyncio.sleep(0.02)
            request.transport.write(b"no chunk\r\n")
            await asyncio.sleep(60)
            return response
        if word.isdigit():
            body = json.dumps(f"status {word}").encode()
            self.note("answered", row, word, body)
            return web.Response(status=int(word), body=body, headers={"Retry-After": "0.01"})
        if word.startswith("class:"):
            text = json.dumps({**reply(row), "_ng_failure_class": word.removeprefix("class:")})
        else:
            text = BODIES[word](reply(row))
        self.note("answered", row, word, text.encode())
        return web.Response(text=text, content_type="application/json")


async def main(address_file, log_file):
    app = web.Application(client_max_size=1 << 30)
    runner = web.AppRunner(app)
    port = 0
    if address_file.exists():
        port = int(address_file.read_text().rsplit(":", 1)[1])
    with log_file.open("a") as log:
        chaos = Chaos(log)

        async def config(request):
            return web.json_response(json.dumps(topology("127.0.0.1", request.url.port)))

        async def metrics(request):
            from rollmake.core.metrics import aggregate_metrics

            return web.json_response(aggregate_metrics((await request.json())["verify_responses"]))

        async def healthy(request):
            return web.json_response({"status": "ok"})

        app.router.add_post("/run", chaos.run)
        app.router.add_post("/aggregate_metrics", metrics)
        app.router.add_get("/global_config_dict_yaml", config)
        for path in ("/", "/health", "/readyz"):
            app.router.add_get(path, healthy)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port, reuse_address=True)
        await site.start()
        address = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
        temporary = address_file.with_suffix(".tmp")
        temporary.write_text(address)
        temporary.replace(address_file)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
