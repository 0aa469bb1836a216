"""Who may call the API: the tokens, and the addresses of this machine."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Any, Literal

from pydantic import SecretStr

from esclusa.model.value import value


@value
class ApiToken:
    """A caller of the API: the name in the history, the token, and the role."""

    name: str
    secret: SecretStr
    role: Literal["read", "operate"] = "operate"


def read_tokens(written: Any) -> tuple[ApiToken, ...]:
    """Read the tokens of ``ESCLUSA_API_TOKENS``: ``token``, ``token:read``, ``name=token``.

    Raises:
        ValueError: if one is malformed, or two are the same.
    """
    if not isinstance(written, list | tuple) or not all(isinstance(w, str) for w in written):
        raise ValueError("tokens are a list of texts: token, token:read or name=token:operate")
    tokens = tuple(_token(text, number) for number, text in enumerate(written, 1))
    secrets = {token.secret.get_secret_value() for token in tokens}
    if len(secrets) < len(tokens) or len({token.name for token in tokens}) < len(tokens):
        raise ValueError("two tokens, or the names of two tokens, are the same")
    return tokens


def _token(text: str, number: int) -> ApiToken:
    name, _, rest = text.partition("=")
    if not rest.strip("="):  # base64 ends with =
        name, rest = f"token-{number}", text
    elif not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,60}", name):
        raise ValueError(
            f"token {number}: its name, before the =, may have letters, digits, . _ @ and -"
        )
    token, _, role = rest.rpartition(":") if ":" in rest else (rest, "", "operate")
    if role not in ("read", "operate"):
        raise ValueError(f"token {number}: its role, after the :, is read or operate")
    if not token:
        raise ValueError(f"token {number} is empty")
    return ApiToken(name, SecretStr(token), "read" if role == "read" else "operate")


def is_loopback(host: str) -> bool:
    """Whether this host name or address stands for this machine."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    return bool((getattr(address, "ipv4_mapped", None) or address).is_loopback)
