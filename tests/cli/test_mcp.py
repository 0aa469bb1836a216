"""``esclusa mcp`` as a client meets it: a process that speaks the protocol on its pipes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import jsonschema
import pytest
from support.processes import Esclusa, environ

HELLO = Path(__file__).parents[2] / "examples" / "hello.py"
VERSION = "io.modelcontextprotocol/protocolVersion"


class Client:
    """A client with one server process."""

    def __init__(self, esclusa: Esclusa, *options: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "esclusa", "mcp", *options],
            cwd=esclusa.folder,
            env=environ(**esclusa.settings),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()  # how a client ends the server
        assert self._process.wait(30) == 0
        assert self._process.stdout is not None
        assert self._process.stdout.read() == ""
        self._process.stdout.close()

    def send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert found["jsonrpc"] == "2.0"
        return found

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._count += 1
        message = {"jsonrpc": "2.0", "id": self._count, "method": method, "params": params}
        self.send(json.dumps(message))
        answer = self.receive()
        assert answer["id"] == self._count
        return answer

    def result(self, method: str, **params: Any) -> Any:
        answer = self.ask(method, **params)
        assert "error" not in answer, answer
        return answer["result"]

    def tool(self, name: str, **arguments: Any) -> Any:
        result = self.result("tools/call", name=name, arguments=arguments)
        [content] = result["content"]
        assert content["type"] == "text"
        if result["isError"]:
            return content["text"]
        assert json.loads(content["text"]) == result["structuredContent"]
        return result["structuredContent"]


@pytest.fixture(scope="module")
def greeted(tmp_path_factory: pytest.TempPathFactory) -> Esclusa:
    """A folder in which the example ran once: alan waits for his next attempt, grace failed."""
    esclusa = Esclusa(
        tmp_path_factory.mktemp("mcp"),
        ESCLUSA_PIPELINES=f"{HELLO}:app",
        ESCLUSA_LOG_LEVEL="error",
    )
    assert esclusa.call("run", "hello.greet").returncode == 5
    return esclusa


@pytest.fixture(scope="module")
def client(greeted: Esclusa) -> Iterator[Client]:
    with Client(greeted) as found:
        yield found


def test_the_handshake_and_its_versions(client: Client) -> None:
    for wanted, given in (
        ("2025-06-18", "2025-06-18"),
        ("2024-11-05", "2024-11-05"),
        ("1999-01-01", "2025-11-25"),  # the newest that has a handshake
    ):
        found = client.result(
            "initialize",
            protocolVersion=wanted,
            capabilities={},
            clientInfo={"name": "test", "version": "1"},
        )
        assert found["protocolVersion"] == given
        assert found["capabilities"] == {"tools": {}, "resources": {}}
        assert found["serverInfo"]["name"] == "esclusa"
        assert "why" in found["instructions"]
    client.send('{"jsonrpc": "2.0", "method": "notifications/initialized"}')
    assert client.result("ping") == {}  # the notification got no answer


def test_the_stateless_revision(client: Client) -> None:
    meta = {VERSION: "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    found = client.result("server/discover", _meta=meta)
    assert found["resultType"] == "complete"
    assert found["supportedVersions"][0] == "2026-07-28"
    assert found["cacheScope"] == "private"
    called = client.result("tools/call", name="why", _meta=meta, arguments={
        "kind": "greetings", "id": "grace"})  # fmt: skip
    assert called["resultType"] == "complete"
    refused = client.ask("tools/list", _meta={VERSION: "1900-01-01"})["error"]
    assert refused["code"] == -32022
    assert refused["data"]["requested"] == "1900-01-01"
    assert "2026-07-28" in refused["data"]["supported"]


def test_every_tool_has_a_valid_schema_and_reads_only(client: Client) -> None:
    tools = client.result("tools/list")["tools"]
    assert [tool["name"] for tool in tools] == [
        "status", "kinds", "records", "record", "why", "history", "search", "dead_letters",
        "alerts", "runs", "retry", "move", "redrive",
    ]  # fmt: skip
    for tool in tools:
        jsonschema.Draft202012Validator.check_schema(tool["inputSchema"])
        assert tool["description"]
        assert tool["annotations"]["readOnlyHint"] is True
        assert "reason" not in tool["inputSchema"]["required"]


def test_it_answers_what_the_command_answers(client: Client, greeted: Esclusa) -> None:
    why = client.tool("why", kind="greetings", id="grace")
    assert why == greeted.json("why", "greetings", "grace")
    assert "moved_away: grace has moved away" in why["answer"]
    failed = client.tool("records", kind="greetings", where=["status=failed"])
    assert [record["id"] for record in failed["items"]] == ["grace"]
    whole = client.tool("record", kind="greetings", id="grace")
    assert whole["record"]["last_error"]["type"] == "moved_away"
    assert [step["to"] for step in whole["history"]] == ["greeting", "failed"]
    assert whole["related"][0]["table"] == "esclusa_dead_letters"
    assert client.tool("history", kind="greetings", id="grace")["items"] == whole["history"]
    counts = {c["state"]: c["count"] for c in client.tool("kinds")["items"][0]["counts"]}
    assert counts == {"waiting": 1, "greeting": 0, "greeted": 3, "failed": 1}
    assert client.tool("status")["dead_letters"] == 1
    assert client.tool("search", text="kath")["items"][0]["items"][0]["id"] == "katherine"
    [group] = client.tool("dead_letters", grouped=True)["items"]
    assert (group["error_type"], group["count"]) == ("moved_away", 1)
    assert client.tool("dead_letters")["items"][0]["record_id"] == "grace"
    assert client.tool("alerts")["items"] == []
    assert client.tool("runs", cycle="hello.greet")["items"][0]["status"] == "partial"
    first = client.tool("records", kind="greetings", limit=2)
    second = client.tool("records", kind="greetings", limit=2, after=first["next"])
    assert {r["id"] for r in first["items"]} & {r["id"] for r in second["items"]} == set()


def test_resources(client: Client) -> None:
    [resource] = client.result("resources/list")["resources"]
    assert resource["uri"] == "esclusa://kinds/greetings/lifecycle"
    [content] = client.result("resources/read", uri=resource["uri"])["contents"]
    assert "waiting --> greeting" in content["text"]
    refused = client.ask("resources/read", uri="file:///etc/passwd")["error"]
    assert refused["code"] == -32602


def test_without_operate_every_operation_is_a_dry_run(client: Client, greeted: Esclusa) -> None:
    before = greeted.json("records", "greetings")
    for name, arguments in (
        ("retry", {"kind": "greetings", "ids": ["grace"]}),
        ("move", {"kind": "greetings", "ids": ["grace"], "to": "waiting"}),
        ("redrive", {"where": ["status=open"]}),
    ):
        found = client.tool(name, **arguments)
        assert (found["dry_run"], found["matched"], found["moved"]) == (True, 1, 0)
        refused = client.tool(name, **arguments, dry_run=False)
        assert "there is no argument dry_run" in refused
    assert greeted.json("records", "greetings") == before
    assert {row["verb"] for row in greeted.json("audit")["items"]} == {"run"}


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("why", {"kind": "greetings"}, "id is required"),
        ("why", {"kind": "greetigns", "id": "1"}, "greetings"),  # the one that was meant
        ("why", {"kind": "greetings", "id": "nobody"}, "nobody"),
        ("records", {"kind": "greetings", "where": "status=failed"}, "where must be"),
        ("records", {"kind": "greetings", "where": ["status=faild"]}, "failed"),
        ("records", {"kind": "greetings", "limit": 100_000}, "from 1 to 200"),
        ("move", {"kind": "greetings", "to": "greeted", "ids": ["grace"]}, "waiting"),
        ("retry", {"kind": "greetings"}, "by id or by a filter"),
    ],
)
def test_a_wrong_call_is_an_answer_that_helps(
    client: Client, name: str, arguments: dict[str, Any], message: str
) -> None:
    found = client.tool(name, **arguments)
    assert isinstance(found, str)
    assert message in found


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("{", -32700),
        ("[]", -32600),
        ('{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600),
        ('{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}', -32600),
        ('{"id": 1, "method": "ping"}', -32600),
        ('{"jsonrpc": "2.0", "id": 1, "method": "prompts/list"}', -32601),
        ('{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "drop"}}', -32602),
    ],
)
def test_messages_that_do_not_fit_the_protocol(client: Client, line: str, code: int) -> None:
    client.send(line)
    assert client.receive()["error"]["code"] == code
    assert client.result("ping") == {}


def test_an_operation_needs_a_reason_and_leaves_an_audit_row(tmp_path: Path) -> None:
    esclusa = Esclusa(tmp_path, ESCLUSA_PIPELINES=f"{HELLO}:app", ESCLUSA_LOG_LEVEL="error")
    assert esclusa.call("run", "hello.greet").returncode == 5
    with Client(esclusa, "--operate") as client:
        tools = {tool["name"]: tool for tool in client.result("tools/list")["tools"]}
        assert tools["retry"]["annotations"]["readOnlyHint"] is False
        assert tools["why"]["annotations"]["readOnlyHint"] is True
        grace = {"kind": "greetings", "ids": ["grace"]}
        assert "reason is required" in client.tool("retry", **grace)
        assert "give a reason" in client.tool("retry", **grace, reason=" ")
        assert client.tool("retry", **grace, reason="she is back", dry_run=True)["moved"] == 0
        assert client.tool("retry", **grace, reason="she is back")["moved"] == 1
    [step] = esclusa.json("show", "greetings", "grace")["history"][-1:]
    assert (step["to"], step["reason"]) == ("waiting", "she is back")
    assert step["who"].startswith("mcp")
    [row] = [row for row in esclusa.json("audit")["items"] if row["verb"] == "retry"]
    assert row["reason"] == "she is back"
    assert row["who"].startswith("mcp")


SECRETS = """
from esclusa import App, Attempt, Backoff, Failure, Lifecycle, Outcome, Record, RunContext

class Call(Record, table="calls", key="name"):
    name: str
    api_token: str = "hidden-1"
    lifecycle = Lifecycle("new -> busy -> done | bad | new\\nbad -> new")

app = App("calls")

@app.stage(Call, take="new", hold="busy", exhausted="bad", retry=Backoff(tries=1))
async def call(each: Call, at: Attempt) -> Outcome:
    raise Failure("GET https://provider.example/x?api_key=hidden-2 answered 500", type="http_error")

@app.cycle()
async def fill(run: RunContext) -> None:
    await run.records.insert([Call(name="one")])
"""


def test_no_tool_shows_a_secret(tmp_path: Path) -> None:
    (tmp_path / "calls.py").write_text(SECRETS)
    esclusa = Esclusa(tmp_path, ESCLUSA_PIPELINES="calls.py:app", ESCLUSA_LOG_LEVEL="error")
    assert esclusa.call("run", "calls.fill").returncode == 0
    assert esclusa.call("run", "calls.call").returncode == 5
    one = {"kind": "calls", "id": "one"}
    with Client(esclusa) as client:
        answers = [
            client.tool("record", **one),
            client.tool("why", **one),
            client.tool("history", **one),
            client.tool("records", kind="calls"),
            client.tool("dead_letters"),
            client.tool("dead_letters", grouped=True),
            client.tool("search", text="one"),
            client.tool("status"),
            client.tool("runs"),
            client.tool("alerts"),
        ]
    text = json.dumps(answers)
    assert "provider.example" in text
    assert "hidden-" not in text
