"""The Model Context Protocol over stdin and stdout: one JSON-RPC message on each line.

It speaks the stateless revision, in which every request names its version, and the earlier ones
that begin with ``initialize``. Tools and resources are the only features.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from esclusa import __version__
from esclusa.model.errors import EsclusaError
from esclusa.model.value import value

# Revisions in which every request carries its version, newest first.
STATELESS = ("2026-07-28",)
# Revisions that begin with `initialize`, newest first.
WITH_HANDSHAKE = ("2025-11-25", "2025-06-18", "2024-11-05")

PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS = -32700, -32600, -32601, -32602
UNSUPPORTED_VERSION = -32022
_VERSION = "io.modelcontextprotocol/protocolVersion"
_INFO = {"name": "esclusa", "title": "Esclusa", "version": __version__}
# How long a client may keep lists: they depend on the options of the command only.
_TTL_MS = 300_000
# The longest message that is read, in characters.
MAX_MESSAGE = 4_000_000


class InvalidCall(EsclusaError):
    """A request that does not fit the protocol; ``code`` says why."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.code, self.data = code, data
        super().__init__(message)


@value
class Tool:
    """Something that a model may call: its name, what it does, and its arguments."""

    name: str
    title: str
    description: str
    call: Callable[..., Awaitable[Any]]
    arguments: Mapping[str, Mapping[str, Any]]
    required: Sequence[str] = ()
    writes: bool = False

    def described(self) -> dict[str, Any]:
        """The tool as ``tools/list`` answers it."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": {
                "type": "object",
                "properties": {name: dict(schema) for name, schema in self.arguments.items()},
                "required": list(self.required),
                "additionalProperties": False,
            },
            "annotations": {
                "title": self.title,
                "readOnlyHint": not self.writes,
                "destructiveHint": False,
                "idempotentHint": not self.writes,
                "openWorldHint": False,
            },
        }

    def check(self, given: Mapping[str, Any]) -> None:
        """Raise InvalidCall for arguments that do not fit."""
        faults = [f"{name} is required" for name in self.required if name not in given]
        for name, content in given.items():
            if name not in self.arguments:
                known = ", ".join(self.arguments) or "none"
                faults.append(f"there is no argument {name} (arguments: {known})")
            elif fault := _fault(content, self.arguments[name]):
                faults.append(f"{name} {fault}")
        if faults:
            raise InvalidCall(INVALID_PARAMS, f"{self.name}: {'; '.join(faults)}")


_TYPES: dict[str, Any] = {
    "string": str, "integer": int, "boolean": bool, "array": list, "object": dict,
}  # fmt: skip


def _fault(content: Any, schema: Mapping[str, Any]) -> str | None:
    """Why a value does not fit its schema; None if it does."""
    kind: str = schema["type"]
    if not isinstance(content, _TYPES[kind]) or (kind == "integer" and isinstance(content, bool)):
        return f"must be of the type {kind}"
    if kind == "array" and not all(isinstance(item, str) for item in content):
        return "must be a list of texts"
    if kind == "integer" and not schema.get("minimum", content) <= content <= schema["maximum"]:
        return f"must be from {schema['minimum']} to {schema['maximum']}"
    if "enum" in schema and content not in schema["enum"]:
        return f"must be one of {', '.join(schema['enum'])}"
    return None


@value
class Resource:
    """A text that a client may read."""

    uri: str
    name: str
    description: str
    mime: str
    read: Callable[[], Awaitable[str]]

    def described(self) -> dict[str, Any]:
        """The resource as ``resources/list`` answers it."""
        return {
            "uri": self.uri,
            "name": self.name,
            "description": self.description,
            "mimeType": self.mime,
        }


class Offer(Protocol):
    """What a server offers."""

    instructions: str
    tools: Sequence[Tool]
    resources: Sequence[Resource]


class McpServer:
    """Answers messages. It keeps no state between them."""

    def __init__(self, offer: Offer, as_json: Callable[[Any], str]) -> None:
        self._offer = offer
        self._as_json = as_json
        self._tools = {tool.name: tool for tool in offer.tools}
        self._resources = {resource.uri: resource for resource in offer.resources}
        self._methods: dict[str, Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]] = {
            "initialize": self._initialize,
            "ping": self._ping,
            "server/discover": self._discover,
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
        }

    async def answer(self, line: str) -> str | None:
        """The answer to one message, on one line; None for a notification or an empty line."""
        if not line.strip():
            return None
        id: str | int | None = None
        try:
            message = _parsed(line)
            if "method" not in message and ("result" in message or "error" in message):
                return None  # an answer: this server asks nothing
            given = message.get("id")
            id = given if isinstance(given, str | int) and not isinstance(given, bool) else None
            method, params = message.get("method"), message.get("params", {})
            if message.get("jsonrpc") != "2.0" or not isinstance(method, str):
                raise InvalidCall(INVALID_REQUEST, "a request has jsonrpc: 2.0, an id and a method")
            if "id" not in message:
                return None  # a notification: none changes anything
            if id is None or not isinstance(params, dict):
                raise InvalidCall(INVALID_REQUEST, "id is a text or a number, params an object")
            result = await self._result(method, params)
        except InvalidCall as error:
            fault = {"code": error.code, "message": str(error)}
            fault |= {} if error.data is None else {"data": error.data}
            return self._as_json({"jsonrpc": "2.0", "id": id, "error": fault})
        return self._as_json({"jsonrpc": "2.0", "id": id, "result": result})

    async def _result(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        meta = params.get("_meta", {})
        version = meta.get(_VERSION) if isinstance(meta, dict) else None
        if version is not None and version not in STATELESS:
            data = {"supported": [*STATELESS, *WITH_HANDSHAKE], "requested": version}
            raise InvalidCall(UNSUPPORTED_VERSION, "Unsupported protocol version", data)
        if method not in self._methods:
            raise InvalidCall(NO_METHOD, f"there is no method {method}")
        result = await self._methods[method](params)
        if version is None:
            return result
        shared = {"resultType": "complete", "_meta": {"io.modelcontextprotocol/serverInfo": _INFO}}
        cached = {"ttlMs": _TTL_MS, "cacheScope": "private"}
        return shared | result | ({} if method == "tools/call" else cached)

    async def _initialize(self, params: Mapping[str, Any]) -> dict[str, Any]:
        wanted = params.get("protocolVersion")
        return {
            "protocolVersion": wanted if wanted in WITH_HANDSHAKE else WITH_HANDSHAKE[0],
            "capabilities": {"tools": {}, "resources": {}},
            "serverInfo": _INFO,
            "instructions": self._offer.instructions,
        }

    async def _discover(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "supportedVersions": [*STATELESS, *WITH_HANDSHAKE],
            "capabilities": {"tools": {}, "resources": {}},
            "serverInfo": _INFO,
            "instructions": self._offer.instructions,
        }

    async def _ping(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    async def _list_tools(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {"tools": [tool.described() for tool in self._offer.tools]}

    async def _call_tool(self, params: Mapping[str, Any]) -> dict[str, Any]:
        name, given = params.get("name"), params.get("arguments", {})
        if not isinstance(name, str) or name not in self._tools or not isinstance(given, dict):
            raise InvalidCall(
                INVALID_PARAMS, f"there is no tool {name!r}; tools: {', '.join(self._tools)}"
            )
        tool = self._tools[name]
        try:
            tool.check(given)
            found = await tool.call(**given)
        except EsclusaError as error:  # the model reads it and may correct its call
            return _failed(str(error))
        except Exception as error:  # noqa: BLE001 - one call must not end the server
            return _failed(f"{type(error).__name__}: {error}")
        written = self._as_json(found)
        return {
            "content": [{"type": "text", "text": written}],
            "structuredContent": json.loads(written),
            "isError": False,
        }

    async def _list_resources(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {"resources": [each.described() for each in self._offer.resources]}

    async def _list_templates(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {"resourceTemplates": []}

    async def _read_resource(self, params: Mapping[str, Any]) -> dict[str, Any]:
        uri = params.get("uri")
        if not isinstance(uri, str) or uri not in self._resources:
            known = ", ".join(self._resources)
            raise InvalidCall(INVALID_PARAMS, f"there is no resource {uri!r}; resources: {known}")
        found = self._resources[uri]
        return {"contents": [{"uri": uri, "mimeType": found.mime, "text": await found.read()}]}


def _failed(why: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": why}], "isError": True}


def _parsed(line: str) -> dict[str, Any]:
    if len(line) > MAX_MESSAGE:
        raise InvalidCall(INVALID_REQUEST, f"a message has at most {MAX_MESSAGE} characters")
    try:
        message = json.loads(line)
    except ValueError as error:
        raise InvalidCall(PARSE_ERROR, f"this is not JSON: {error}") from error
    if not isinstance(message, dict):
        raise InvalidCall(INVALID_REQUEST, "a message is one JSON object; batches are not accepted")
    return message
