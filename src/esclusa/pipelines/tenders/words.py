"""Texts of tenders and preferences, as they are compared."""

from __future__ import annotations

import unicodedata
from functools import lru_cache


@lru_cache(maxsize=1 << 14)
def normalize(text: str) -> str:
    """Return the text trimmed, without case or accents, with single spaces, for comparison."""
    split = unicodedata.normalize("NFKD", text.casefold())
    return " ".join("".join(c for c in split if not unicodedata.combining(c)).split())


def begins_word(part: str, text: str) -> bool:
    """Whether the text has the part where a word begins: "arte" is in "artes", not in "parte"."""
    at = text.find(part)
    while at > 0 and part[:1].isalnum() and text[at - 1].isalnum():
        at = text.find(part, at + 1)
    return at >= 0
