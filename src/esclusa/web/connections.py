"""HTTP/1.1 connections: limits on time and number, and framing that cannot be read in two ways."""

from __future__ import annotations

import contextlib
import http
import math
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, Final, Literal

import h11
import uvicorn
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

from esclusa.model.value import value
from esclusa.ports.telemetry import Telemetry
from esclusa.web import problems

# Bytes per second that a client must send of a body, or take of an answer, while it is awaited.
LEAST_RATE: Final = 500
# Seconds in which the rest of a request may arrive after the answer: a client that is still sending
# gets the answer only if the connection stays open for a moment.
LINGER: Final = 5.0
# Connections beyond the limit that are answered 503; further ones are closed at once.
REFUSED: Final = 100
# Seconds between two checks of the connections, and between two lines about refused ones.
CHECK_INTERVAL: Final = 0.5
REPORT_INTERVAL: Final = 10.0

# What the client has to do next; None while it is the server's turn.
Awaited = Literal["request", "body", "rest", "answer"] | None

_BAD_REQUEST: Final = (
    "This is not a valid HTTP request: the request line, a header (its length, its encoding) or the"
    " body's framing is wrong."
)


@value
class ConnectionLimits:
    """How long a client may stall, and how many connections may be open."""

    seconds: float = 30.0
    connections: int = 512


class HttpServer(uvicorn.Server):
    """Serves an app within the limits. Signals are left to its owner, which has more to stop."""

    def __init__(
        self, app: FastAPI, limits: ConnectionLimits, telemetry: Telemetry, *, grace: float
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=partial(HttpProtocol, limits=limits),  # type: ignore[arg-type]  # it is called
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=math.ceil(grace) + 3,
            )
        )
        self._limits = limits
        self._telemetry = telemetry
        self._checked_at = time.monotonic()
        self._reported_at = float("-inf")

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    @property
    def connections(self) -> list[HttpProtocol]:
        """The open connections."""
        return [c for c in self.server_state.connections if isinstance(c, HttpProtocol)]

    async def on_tick(self, counter: int) -> bool:
        """Check the connections; uvicorn calls this ten times a second."""
        now = time.monotonic()
        if now - self._checked_at >= CHECK_INTERVAL:
            self._checked_at = now
            connections = self.connections
            for connection in connections:
                connection.check()
            refused = sum(connection.refused for connection in connections)
            if refused and now - self._reported_at >= REPORT_INTERVAL:
                self._reported_at = now
                self._telemetry.event(
                    "warning",
                    f"connections are refused: {self._limits.connections} are open,"
                    " as many as ESCLUSA_MAX_CONNECTIONS allows",
                    refused=refused,
                )
        return await super().on_tick(counter)


class HttpProtocol(H11Protocol):
    """One connection. A request that reaches no route is answered with a problem."""

    def __init__(self, *args: Any, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conn = _StrictConnection(h11.SERVER)
        self.refused = False
        # The last answer was sent; what still arrives is discarded.
        self.ended = False
        self._limits = limits
        self._awaited: Awaited = None
        self.waited = 0.0
        self._received = 0
        self._unsent = 0
        self._counted = self.cycle

    # the number of connections

    def connection_made(self, transport: Any) -> None:
        """Take the connection; beyond the limit, close one without a request or refuse this one."""
        super().connection_made(transport)
        if len(self.connections) <= self._limits.connections:
            return
        others = [c for c in self.connections if isinstance(c, HttpProtocol) and c is not self]
        if needless := [c for c in others if c.idle or c.lingering]:
            max(needless, key=lambda c: (c.lingering, c.waited)).transport.close()
        elif len(self.connections) > self._limits.connections + REFUSED:
            transport.abort()
        else:
            self.refused = True
            detail = "too many connections are open; try again in a moment"
            self._answer(
                problems.problem(
                    503, detail, slug="too-many-connections", headers={"Retry-After": "5"}
                )
            )

    @property
    def idle(self) -> bool:
        """Whether no part of a request has arrived since the last one was answered."""
        return (
            self.conn.their_state is h11.IDLE
            and not self.refused
            and not self.ended
            and not self.conn.trailing_data[0]
            and not self.transport.is_closing()
        )

    @property
    def lingering(self) -> bool:
        """Whether the last answer was sent and the client has not closed the connection yet."""
        return self.ended and not self.transport.is_closing()

    # time

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        if not (self.refused or self.ended):
            super().data_received(data)

    def check(self) -> None:
        """End the connection if its client stalls; called every ``CHECK_INTERVAL``.

        A client has the limit's seconds to send the head of a request. While a body or the reading
        of an answer is awaited, it must go on at ``LEAST_RATE`` in every such period. Checks are
        counted instead of time: while the event loop is blocked, no data is received.
        """
        awaited, unsent = self._awaits(), self.transport.get_write_buffer_size()
        progress = self._unsent - unsent if awaited == "answer" else self._received
        steady = awaited in ("body", "answer") and progress >= LEAST_RATE * self._limits.seconds
        if awaited != self._awaited or self.cycle is not self._counted or steady:
            self._awaited, self._counted = awaited, self.cycle
            self.waited, self._received, self._unsent = 0.0, 0, unsent
        elif awaited is not None:
            self.waited += CHECK_INTERVAL
            if self.waited >= (LINGER if awaited == "rest" else self._limits.seconds):
                self._end(awaited)

    def _awaits(self) -> Awaited:
        if self.transport.is_closing() or self.flow.write_paused:
            return "answer"
        if self.refused or self.ended:
            return "rest"
        if self.conn.their_state is h11.IDLE:
            return "request"
        if self.conn.their_state is h11.SEND_BODY:
            if self.cycle.response_complete:
                return "rest"
            return None if self.flow.read_paused else "body"
        return None

    def _end(self, awaited: Awaited) -> None:
        if awaited == "answer":
            self.transport.abort()
            return
        if awaited == "body" or (awaited == "request" and not self.idle):
            what = "body" if awaited == "body" else "head"
            detail = (
                f"the {what} of the request did not arrive within {self._limits.seconds:g} s,"
                f" or came at less than {LEAST_RATE} bytes per second"
            )
            self._answer(problems.problem(408, detail, slug="request-timeout"))
            self._linger()
        else:
            self.transport.close()
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _linger(self) -> None:
        """Send nothing more, and wait for the client to close: a reset would take its answer."""
        self.ended = True
        self.transport.write_eof()

    def shutdown(self) -> None:
        """End the connection, after its answer if one is under way."""
        if self.ended:
            self.transport.close()
        else:
            super().shutdown()

    # answers that come from no route

    def send_400_response(self, msg: str) -> None:
        """Answer a malformed request, and close the connection."""
        self._answer(problems.problem(400, _BAD_REQUEST, slug="bad-request"))
        self._linger()

    def _answer(self, refusal: JSONResponse) -> None:
        """Send a problem that ends the connection, unless another response has begun."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        response = h11.Response(
            status_code=refusal.status_code,
            headers=[
                *refusal.raw_headers,
                (b"x-content-type-options", b"nosniff"),
                (b"connection", b"close"),
            ],
            reason=http.HTTPStatus(refusal.status_code).phrase.encode(),
        )
        for event in (response, h11.Data(data=bytes(refusal.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")

    def _should_upgrade(self) -> bool:
        return False  # nothing is served but HTTP; the request is answered as if it had not asked


class _StrictConnection(h11.Connection):
    """Refuses a request whose body could end in two places, depending on who reads it."""

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if b"transfer-encoding" in names and (
                b"content-length" in names or event.http_version < b"1.1"
            ):
                raise h11.RemoteProtocolError("Content-Length beside Transfer-Encoding")
        return event
