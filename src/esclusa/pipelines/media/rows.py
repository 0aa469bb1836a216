"""Rows of an imported file as media."""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import urlsplit

from esclusa import EsclusaError
from esclusa.imports import ImportedRow
from esclusa.pipelines.media.records import Medium

COLUMNS = ("post_id", "tipo_item", "imagen_url", "imagen_local", "media_id")
# Prefix of a part that is derived from the link because the row has no media id.
BY_LINK = "url:"


class InvalidMediaRow(EsclusaError):
    """A row that cannot be imported; the message names every fault."""


def read_row(row: ImportedRow) -> Medium:
    """Return the medium of a row; raise InvalidMediaRow with all of its faults."""
    if row.values is None:
        raise InvalidMediaRow(row.fault or "it cannot be read")
    values = {name: _text(value) for name, value in row.values.items()}
    faults = [
        f"{name}: there is no such column; the columns are {', '.join(COLUMNS)}"
        for name in values
        if name not in COLUMNS
    ]
    faults += [
        f"{name}: it must be text"
        + (" without line breaks or control characters" if isinstance(value, str) else "")
        for name, value in row.values.items()
        if value is not None and values[name] is None and value != ""
    ]
    post, url = values.get("post_id"), values.get("imagen_url")
    if post is None and not any(fault.startswith("post_id: ") for fault in faults):
        faults.append("post_id: it is missing")
    if url is not None and (fault := _link_fault(url)) is not None:
        faults.append(f"imagen_url: {fault}")
    if faults:
        raise InvalidMediaRow("; ".join(faults))
    assert post is not None
    part = values.get("media_id") or (
        "0" if url is None else f"{BY_LINK}{hashlib.sha256(url.encode()).hexdigest()[:32]}"
    )
    return Medium(post, part, values.get("tipo_item"), url, imagen_local=values.get("imagen_local"))


def _link_fault(url: str) -> str | None:
    try:
        scheme = urlsplit(url).scheme
    except ValueError as error:
        return f"it is not an address: {error}"
    if scheme in ("http", "https"):
        return None
    return f"it must begin with http:// or https://, not {url[:40]!r}"


def _text(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    text = str(value).strip()
    return text if text and text.isprintable() else None
