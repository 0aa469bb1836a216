"""Who is at the console: sessions in a signed cookie, and the tokens that forms carry against forgery."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Final

from starlette.requests import cookie_parser

from esclusa.model.value import value
from esclusa.web.auth.tokens import Role, Token

COOKIE: Final = "esclusa_session"
VISIT: Final = "esclusa_visit"
LASTS: Final = 12 * 3600
"""Seconds that a session lasts."""


@value
class Visitor:
    """Somebody who looks at the console, what they may do, and the nonce that their forms answer to."""

    name: str
    role: Role
    nonce: str

    @property
    def who(self) -> str:
        return f"console:{self.name}" if self.name else "console"


class Sessions:
    """Sessions live in the visitor's cookie alone, signed with the hash of their token: every process knows them, a restart
    does not end them, and taking a token away ends its sessions."""

    def __init__(self, tokens: Sequence[Token], clock: Callable[[], float] = time.time) -> None:
        self._tokens = {token.name: token for token in tokens}
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self.needed = bool(tokens)

    def open(self, token: Token) -> str:
        """The cookie of a new session."""
        said = f"{_packed(token.name)}.{int(self._clock()) + LASTS}.{secrets.token_urlsafe(12)}"
        return f"{said}.{_sign(token.digest, said)}"

    def visitor(self, cookie: str) -> Visitor | None:
        """The one whose session this is, in the cookies of a request; None if there is none that holds."""
        cookies = cookie_parser(
            cookie
        )  # forgiving: another program of this host may set cookies of its own
        if not self.needed:
            return Visitor("", "operate", cookies.get(VISIT, ""))
        said, _, signature = cookies.get(COOKIE, "").rpartition(".")
        parts = said.split(".")
        if len(parts) != 3 or not parts[1].isdigit():
            return None
        token = self._tokens.get(_unpacked(parts[0]))
        if token is None or not hmac.compare_digest(
            _sign(token.digest, said).encode(), signature.encode("utf-8", "surrogatepass")
        ):
            return None
        if int(parts[1]) < self._clock():
            return None
        return Visitor(token.name, token.role, parts[2])

    def form_token(self, nonce: str) -> str:
        """What a form of this visitor must carry."""
        key = (
            hashlib.sha256(b"".join(t.digest for t in self._tokens.values())).digest()
            if self.needed
            else self._key
        )
        return _sign(key, f"form.{nonce}")

    def genuine(self, nonce: str, given: str) -> bool:
        """Whether a form that came back is one that this visitor was given."""
        return bool(nonce) and hmac.compare_digest(
            self.form_token(nonce).encode(), given.encode("utf-8", "surrogatepass")
        )


def _sign(key: bytes, said: str) -> str:
    made = hmac.new(key, f"esclusa.{said}".encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(made).decode().rstrip("=")


def _packed(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


def _unpacked(text: str) -> str:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except ValueError:
        return ""
