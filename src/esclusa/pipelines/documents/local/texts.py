"""Texts made comparable."""

from __future__ import annotations

import unicodedata
from functools import lru_cache


@lru_cache(8192)
def plain(text: str) -> str:
    """Lower case, without accents."""
    if text.isascii():
        return text.lower()
    return "".join(
        ch for ch in unicodedata.normalize("NFKD", text.lower()) if not unicodedata.combining(ch)
    )
