"""Masks secrets in logs, alerts and messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

MASK = "***"
# Characters of one string that are kept: log collectors cut an entry at 256 KB.
MAX_TEXT = 16_000

_MAX_DEPTH = 8
_WORDS = frozenset({
    "apikey", "auth", "authorization", "cookie", "cookies", "credential", "credentials", "key",
    "passphrase", "passwd", "password", "pwd", "secret", "secrets", "sig", "signature", "ticket",
    "tickets", "token", "tokens",
})  # fmt: skip
# Names with "key" or "ticket" that identify a row and are not secret.
_HARMLESS = frozenset(
    {
        "provider_ticket_id",
        "ticket_id",
        "dedup_key",
        "foreign_key",
        "key_name",
        "primary_key",
        "public_key",
        "record_key",
        "sort_key",
    }
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PARTS = re.compile(r"[^a-z0-9]+")

_NAMES = (
    r"(?:api[_-]?key|authorization|credential|key|passphrase|passwd|password|pwd|secret|sig"
    r"|signature|ticket|token)"
)


def _rule(needs: str, pattern: str, instead: str) -> tuple[str, re.Pattern[str], str]:
    return needs, re.compile(pattern, re.IGNORECASE), instead


# Each with a text that must occur for it to apply: searching that is ten times faster.
_RULES = (
    # postgresql://user:password@host
    _rule(
        "://",
        r"(\b[a-z][a-z0-9+.-]{1,30}://[^\s/@:?#\"']{0,200}):[^\s/\"']{1,500}@",
        rf"\1:{MASK}@",
    ),
    # ?ticket=…  &X-Amz-Signature=…  #access_token=…
    _rule(
        "=",
        rf"([?&;#](?:[\w.%-]{{0,60}}[_.-])?(?:access|client|refresh|id)?{_NAMES}=)[^&\s\"'<>#;]+",
        rf"\1{MASK}",
    ),
    # Authorization: Basic …, Bearer … anywhere
    _rule(
        "authorization",
        r"(\bauthorization[\"']?\s*[:=]\s*[\"']?(?:basic|bearer|token|apikey)\s+)[^\s\"',]+",
        rf"\1{MASK}",
    ),
    _rule("bearer", r"(\bbearer\s+)[\w.~+/=-]{6,}", rf"\1{MASK}"),
    # ExponentPushToken[…]
    _rule("token[", r"(\b\w{0,40}token\[)[^\]\s\"']{1,300}\]", rf"\1{MASK}]"),
    # "token": "…", 'password': '…'
    _rule(
        '"',
        rf"""("(?:\w{{0,60}}[_-])?{_NAMES}"\s*[:=]\s*)"(?:\\.|[^"\\]){{1,4000}}\"""",
        rf'\1"{MASK}"',
    ),
    _rule(
        "'",
        rf"""('(?:\w{{0,60}}[_-])?{_NAMES}'\s*[:=]\s*)'(?:\\.|[^'\\]){{1,4000}}'""",
        rf"\1'{MASK}'",
    ),
    # password=… or password='…' in a connection string; PGPASSWORD=…; token=… in a message
    _rule(
        "=",
        r"""(\b(?:\w{0,60}_|pg)?(?:password|passwd|pwd|secret|token|ticket|api_?key)\s?=\s?)"""
        r"""(?:'(?:\\.|[^'\\]){1,4000}'|"(?:\\.|[^"\\]){1,4000}"|[^\s&;,\"'<>#]+)""",
        rf"\1{MASK}",
    ),
)


def text(value: str) -> str:
    """The string with recognizable secrets masked, cut to ``MAX_TEXT`` characters."""
    if len(value) > MAX_TEXT:
        value = f"{value[:MAX_TEXT]}… ({len(value)} characters)"
    low = value.lower()
    for needs, pattern, instead in _RULES:
        if needs in low:
            value = pattern.sub(instead, value)
    return value


def fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as plain JSON, with secrets masked by their name or their form."""
    return {str(name): _value(value, str(name), 0) for name, value in values.items()}


@lru_cache(maxsize=4096)
def secret_name(name: str) -> bool:
    """Whether values with this name are secrets, judged by its words."""
    snake = _CAMEL.sub("_", name).lower()
    return snake not in _HARMLESS and not _WORDS.isdisjoint(_PARTS.split(snake))


def _value(value: Any, name: str, depth: int) -> Any:
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # JSON has no infinity and no NaN
    if secret_name(name):
        return MASK
    if type(value) is str:
        return text(value)
    if depth >= _MAX_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        return {text(str(key)): _value(each, str(key), depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_value(each, "", depth + 1) for each in value]
    try:
        return text(str(value))
    except Exception:  # noqa: BLE001  # a broken __str__ must not break the log
        return f"<{type(value).__name__}>"
