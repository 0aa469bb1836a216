"""A TCP proxy with faults on demand, to stand between a program and PostgreSQL.

    with TcpProxy(server.port) as proxy:
        url = proxy.url(server.url("shop"))      # the same database through the proxy
        proxy.cut()                              # both sides of every connection are reset
        proxy.refuse(); proxy.accept()           # new connections are reset, until `accept`
        proxy.delay(0.2); proxy.delay(0)         # every chunk arrives 0.2 s later, until 0
        proxy.freeze(); proxy.thaw()             # nothing arrives in either direction, no end seen
        proxy.freeze(new=False)                  # open connections hang for ever, new ones work
        proxy.half_open("client")                # the client is reset, the server never learns it
        proxy.half_open("server")                # the server is reset, the client never learns it

        rule = proxy.when(b"COMMIT", "freeze")   # the next connection that sends COMMIT freezes
        rule.wait(30)                            # just before it: the server never gets COMMIT
        rule.connection.half_open("client")

        for connection in proxy.connections():   # one connection: cut, delay, freeze, thaw,
            connection.freeze()                  # half_open

The proxy runs in a thread of its own. Every method may be called from any thread, from sync and
from async tests, and has taken effect when it returns; only ``MatchRule.wait`` waits for others, so
an async test calls ``await asyncio.to_thread(rule.wait, 30)``. For faults of one machine of several
give each its own proxy.

A program that ends while its connection is frozen has vanished: the server learns it only after
``thaw``. TCP keepalive does not reveal it either, because the proxy's kernel answers the probes. So
the faults are at least as hard as those of a network.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit, urlunsplit

from support.loopback import free_port
from support.server import Server

T = TypeVar("T")
Side: TypeAlias = Literal["client", "server"]
Fault: TypeAlias = Literal["cut", "freeze", "half-open client", "half-open server"]

_CHUNK = 1 << 16
_LONGEST = 64  # bytes of a pattern
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: a close sends RST


class MatchRule:
    """A fault that happens just before a connection forwards some bytes."""

    def __init__(self, pattern: bytes, fault: Fault, sender: Side, times: int) -> None:
        self.pattern = pattern
        self.fault = fault
        self.sender = sender
        self.times = times
        self.connection: ProxyConnection | None = None
        """The connection that matched last."""
        self._matched = threading.Event()

    @property
    def matched(self) -> bool:
        return self._matched.is_set()

    def wait(self, seconds: float) -> ProxyConnection:
        """Block until a connection matched; AssertionError after ``seconds``."""
        if not self._matched.wait(seconds):
            raise AssertionError(f"no {self.sender} sent {self.pattern!r} within {seconds} s")
        assert self.connection is not None
        return self.connection

    def match(self, connection: ProxyConnection) -> bool:
        """Count a match; False when the rule has been used up."""
        if self.times <= 0:
            return False
        self.times -= 1
        self.connection = connection
        self._matched.set()
        return True


class ProxyConnection:
    """One connection through the proxy."""

    def __init__(self, proxy: TcpProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._sockets: dict[Side, socket.socket] = {"client": client, "server": server}
        self._flows = asyncio.Event()
        self._flows.set()
        self._delay = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self.open = True
        """Whether the proxy forwards between both sides; a frozen connection is open."""

    def cut(self) -> None:
        """Reset both sides."""
        self._proxy.run(self._cut)

    def delay(self, seconds: float) -> None:
        """Forward every chunk this much later."""
        self._proxy.run(lambda: self._set_delay(seconds))

    def freeze(self) -> None:
        """Forward nothing, in either direction, until ``thaw``. Neither side sees an end."""
        self._proxy.run(self._flows.clear)

    def thaw(self) -> None:
        """Forward again, first what was held back."""
        self._proxy.run(self._flows.set)

    def half_open(self, vanished: Side) -> None:
        """Reset the side that vanished; the other never learns it, until the proxy stops."""
        self._proxy.run(lambda: self._half_open(vanished))

    # in the proxy's thread

    def _start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._forward("client", "server")),
            asyncio.create_task(self._forward("server", "client")),
        ]

    async def _forward(self, sender: Side, receiver: Side) -> None:
        loop = asyncio.get_running_loop()
        source, target = self._sockets[sender], self._sockets[receiver]
        tail = b""
        try:
            while data := await loop.sock_recv(source, _CHUNK):
                self._proxy.apply_rules(self, sender, tail, data)
                tail = data[-_LONGEST:]
                if self._delay:
                    await asyncio.sleep(self._delay)
                await self._flows.wait()
                await loop.sock_sendall(target, data)
            await self._flows.wait()
        except OSError:
            await self._flows.wait()  # a frozen connection does not pass on an end either
        self._end()

    def _apply(self, fault: Fault) -> None:
        match fault:
            case "cut":
                self._cut()
            case "freeze":
                self._flows.clear()
            case "half-open client":
                self._half_open("client")
            case "half-open server":
                self._half_open("server")

    def _set_delay(self, seconds: float) -> None:
        self._delay = seconds

    def _stop(self) -> None:
        """Forward nothing more."""
        self.open = False
        self._proxy.forget(self)
        loop = asyncio.get_running_loop()
        for task in self._tasks:
            task.cancel()
        for each in self._sockets.values():  # before a close: another socket may get the number
            if each.fileno() >= 0:
                loop.remove_reader(each)
                loop.remove_writer(each)

    def _cut(self) -> None:
        self._stop()
        for each in self._sockets.values():
            _reset(each)

    def _half_open(self, vanished: Side) -> None:
        self._stop()
        for side, each in self._sockets.items():
            if side == vanished:
                _reset(each)
            else:
                self._proxy.keep(each)

    def _end(self) -> None:
        """One side ended: end the other in the usual way."""
        self._stop()
        for each in self._sockets.values():
            each.close()


class TcpProxy(Server):
    """Forwards connections on a free port of loopback to a server; the module has an overview."""

    def __init__(self, server_port: int, *, port: int = 0) -> None:
        self.server_port = server_port
        # A closed port of outgoing connections could be taken by the very client that tries it.
        self.port = port or free_port()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._listener: socket.socket | None = None
        self._opening: dict[asyncio.Task[None], socket.socket] = {}
        self._connections: list[ProxyConnection] = []
        self._kept: list[socket.socket] = []
        self._rules: list[MatchRule] = []
        self._delay = 0.0
        self._frozen = False
        self._refusing = False

    def start(self) -> None:
        self._thread.start()
        self.run(self._listen)

    def stop(self) -> None:
        """Reset every connection and end the thread."""
        if not self._thread.is_alive():
            return
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def url(self, url: str) -> str:
        """The URL of the server, through the proxy."""
        parts = urlsplit(url)
        user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
        return urlunsplit(parts._replace(netloc=f"{user}127.0.0.1:{self.port}"))

    def connections(self) -> list[ProxyConnection]:
        """The open connections, oldest first."""
        return self.run(lambda: list(self._connections))

    def cut(self) -> None:
        """Reset both sides of every open connection."""
        self._each(ProxyConnection._cut)

    def refuse(self) -> None:
        """Reset new connections until ``accept``."""
        self.run(lambda: setattr(self, "_refusing", True))

    def accept(self) -> None:
        self.run(lambda: setattr(self, "_refusing", False))

    def delay(self, seconds: float) -> None:
        """Forward every chunk of open and new connections this much later."""

        def apply() -> None:
            self._delay = seconds
            for connection in self._connections:
                connection._set_delay(seconds)

        self.run(apply)

    def freeze(self, *, existing: bool = True, new: bool = True) -> None:
        """Forward nothing on these connections until ``thaw``; a new one is accepted and hangs."""

        def apply() -> None:
            self._frozen = new
            for connection in self._connections if existing else ():
                connection._flows.clear()

        self.run(apply)

    def thaw(self) -> None:
        """Forward again on all connections."""

        def apply() -> None:
            self._frozen = False
            for connection in self._connections:
                connection._flows.set()

        self.run(apply)

    def half_open(self, vanished: Side) -> None:
        """Reset this side of every open connection; the other never learns it."""
        self._each(lambda connection: connection._half_open(vanished))

    def when(
        self, pattern: bytes, fault: Fault, *, sender: Side = "client", times: int = 1
    ) -> MatchRule:
        """Apply the fault to a connection just before it forwards bytes with ``pattern``.

        The whole chunk is held back, not only the pattern. The rule ends after ``times`` matches.
        """
        if not 0 < len(pattern) <= _LONGEST:
            raise ValueError(f"a pattern has 1 to {_LONGEST} bytes")
        rule = MatchRule(pattern, fault, sender, times)
        self.run(lambda: self._rules.append(rule))
        return rule

    def run(self, action: Callable[[], T]) -> T:
        """Run a function in the proxy's thread and return its result."""

        async def call() -> T:
            return action()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(10)

    # in the proxy's thread

    def apply_rules(
        self, connection: ProxyConnection, sender: Side, tail: bytes, data: bytes
    ) -> None:
        """Apply the rules to new data; a pattern may begin in ``tail``, the data before it."""
        for rule in list(self._rules):
            across = len(rule.pattern) - 1
            seen = (tail[-across:] if across else b"") + data
            if rule.sender == sender and rule.pattern in seen and rule.match(connection):
                connection._apply(rule.fault)
            if rule.times <= 0:
                self._rules.remove(rule)

    def forget(self, connection: ProxyConnection) -> None:
        if connection in self._connections:
            self._connections.remove(connection)

    def keep(self, half: socket.socket) -> None:
        """Keep a socket open without reading from it."""
        self._kept.append(half)

    def _each(self, action: Callable[[ProxyConnection], Any]) -> None:
        self.run(lambda: [action(connection) for connection in list(self._connections)])

    def _listen(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
        self._listener.setblocking(False)
        self._loop.add_reader(self._listener, self._accept, self._listener)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            client, _ = listener.accept()
            task = self._loop.create_task(self._open(client))
            self._opening[task] = client
            task.add_done_callback(self._opening.pop)

    async def _open(self, client: socket.socket) -> None:
        client.setblocking(False)
        server = socket.socket()
        server.setblocking(False)
        try:
            if self._refusing:
                raise ConnectionRefusedError
            await self._loop.sock_connect(server, ("127.0.0.1", self.server_port))
        except (OSError, asyncio.CancelledError):  # refused, or the proxy stops
            _reset(client)
            server.close()
            return
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = ProxyConnection(self, client, server)
        connection._set_delay(self._delay)
        if self._frozen:
            connection._flows.clear()
        self._connections.append(connection)
        connection._start()

    async def _shut(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
        for connection in list(self._connections):
            connection._cut()
        for each in (*self._opening.values(), *self._kept):
            _reset(each)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


def _reset(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    each.close()
