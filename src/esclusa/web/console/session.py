"""Console sessions in a signed cookie, and the tokens that protect forms against forgery."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from starlette.requests import cookie_parser

from esclusa.engine.clock import StoreClock
from esclusa.engine.records import Records
from esclusa.model.errors import EsclusaError
from esclusa.model.system_records import EndedSession
from esclusa.model.value import value
from esclusa.ports.telemetry import Telemetry
from esclusa.web.api.health import within
from esclusa.web.auth.tokens import Role, Token

COOKIE: Final = "esclusa_session"
# The cookie with the nonce of a visitor where no session is needed.
VISIT: Final = "esclusa_visit"
# Seconds that a session lasts.
LIFETIME: Final = 12 * 3600
# Seconds that the store has to say whether a session was ended.
STORE_TIMEOUT: Final = 3.0
# Ended sessions that a process keeps in memory.
MAX_KNOWN: Final = 10_000


@value
class Visitor:
    """A person at the console: their role, and the nonce that binds forms to them."""

    name: str
    role: Role
    nonce: str

    @property
    def who(self) -> str:
        """The name in the history and the audit."""
        return f"console:{self.name}" if self.name else "console"


class Sessions:
    """Opens and checks sessions.

    A session is a cookie signed with the hash of its token. So every process knows every session, a
    restart ends none, and removing a token ends its sessions. ``EndedSessions`` knows which of them
    were ended by signing out. ``form_key`` signs forms where there is no token: without it, forms
    are only for the process that made them.
    """

    def __init__(
        self,
        tokens: Sequence[Token],
        clock: Callable[[], float] = time.time,
        form_key: bytes | None = None,
    ) -> None:
        self._tokens = {token.name: token for token in tokens}
        self._clock = clock
        self.needed = bool(tokens)
        digests = b"".join(token.digest for token in tokens)
        shared = hashlib.sha256(digests).digest() if tokens else form_key
        self._form_key = shared or secrets.token_bytes(32)

    def open(self, token: Token) -> str:
        """The cookie of a new session."""
        expires = int(self._clock()) + LIFETIME
        content = f"{_encode(token.name.encode())}.{expires}.{secrets.token_urlsafe(12)}"
        return f"{content}.{_sign(token.digest, content)}"

    def visitor(self, cookie: str) -> Visitor | None:
        """The visitor whose valid session is among these cookies; None if there is none."""
        # A strict parser would drop the session when another program sets a malformed cookie.
        cookies = cookie_parser(cookie)
        if not self.needed:
            return Visitor("", "operate", cookies.get(VISIT, ""))
        content, _, signature = cookies.get(COOKIE, "").rpartition(".")
        parts = content.split(".")
        if len(parts) != 3 or not parts[1].isdigit():
            return None
        token = self._tokens.get(_decode(parts[0]))
        if (
            token is None
            or not _same(_sign(token.digest, content), signature)
            or int(parts[1]) < self._clock()
        ):
            return None
        return Visitor(token.name, token.role, parts[2])

    def form_token(self, nonce: str) -> str:
        """The token that every form of this visitor carries.

        It is masked anew each time: a page that holds it may be compressed.
        """
        token = _digest(self._form_key, f"form.{nonce}")
        mask = secrets.token_bytes(len(token))
        return (mask + _mask(token, mask)).hex()

    def genuine(self, nonce: str, given: str) -> bool:
        """Whether the form was made for this visitor."""
        try:
            raw = bytes.fromhex(given)
        except ValueError:
            return False
        token = _digest(self._form_key, f"form.{nonce}")
        mask, masked = raw[: len(token)], raw[len(token) :]
        return bool(nonce) and hmac.compare_digest(_mask(masked, mask), token)


class EndedSessions:
    """Sessions that were ended by signing out, in any process.

    They are stored until their cookies would have expired.
    """

    def __init__(self, records: Records, clock: StoreClock, telemetry: Telemetry) -> None:
        self._records = records
        self._clock = clock
        self._telemetry = telemetry
        self._known: OrderedDict[str, None] = OrderedDict()

    async def add(self, visitor: Visitor) -> None:
        """End a visitor's session, here at once and in other processes if the store answers."""
        self._remember(visitor.nonce)
        ended = EndedSession(session=visitor.nonce, ended_at=self._clock.now())
        try:
            await within(STORE_TIMEOUT, self._records.insert([ended]))
        except (EsclusaError, TimeoutError) as error:
            self._telemetry.event(
                "warning",
                f"{visitor.who} signed out, but the store does not answer: other processes accept"
                f" the session for up to {LIFETIME // 3600} hours: {error}",
            )

    async def has(self, visitor: Visitor) -> bool | None:
        """Whether a visitor's session was ended; None if the store does not answer."""
        if visitor.nonce in self._known:
            return True
        found = self._records.get(EndedSession, EndedSession.kind.id_of(visitor.nonce))
        try:
            ended = await within(STORE_TIMEOUT, found)
        except (EsclusaError, TimeoutError):
            return None
        if ended is None:
            return False
        self._remember(visitor.nonce)
        return True

    def _remember(self, nonce: str) -> None:
        self._known[nonce] = None
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)


def _same(expected: str, given: str) -> bool:
    return hmac.compare_digest(expected.encode(), given.encode("utf-8", "surrogatepass"))


def _sign(key: bytes, content: str) -> str:
    return _encode(_digest(key, content))


def _digest(key: bytes, content: str) -> bytes:
    return hmac.new(key, f"esclusa.{content}".encode(), hashlib.sha256).digest()


def _mask(content: bytes, mask: bytes) -> bytes:
    """The content masked, or a masked one as it was."""
    return bytes(a ^ b for a, b in zip(content, mask, strict=False))


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _decode(text: str) -> str:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except ValueError:
        return ""
