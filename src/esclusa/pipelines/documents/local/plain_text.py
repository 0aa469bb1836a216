"""Text in a form that can be compared."""

from __future__ import annotations

import unicodedata
from functools import lru_cache


@lru_cache(8192)
def plain(text: str) -> str:
    """Return the text in lower case and without accents."""
    if text.isascii():
        return text.lower()
    return "".join(
        ch for ch in unicodedata.normalize("NFKD", text.lower()) if not unicodedata.combining(ch)
    )
