"""Esclusa opened in a process of Django's, with the database of Django's settings."""

from __future__ import annotations

import atexit
import os
import threading
from contextlib import ExitStack
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from esclusa.embedding import open_sync
from esclusa.sync import SyncRuntime

_lock = threading.Lock()
# The runtime of each process: after a fork the child opens its own.
_opened: dict[int, tuple[SyncRuntime, ExitStack]] = {}


def opened() -> SyncRuntime:
    """Esclusa in this process, opened at the first call and closed when the process ends.

    To read records, to wait for them, and for what an operator can do. It has connections of its
    own: to add records in the transaction of ``atomic()``, use ``insert``.
    """
    process = os.getpid()
    with _lock:
        if process not in _opened:
            given, stack = settings_of_host(), ExitStack()
            runtime = stack.enter_context(
                open_sync(*given.pop("pipelines"), migrate=False, **given)
            )
            _opened[process] = runtime, stack
            atexit.register(close)
        return _opened[process][0]


def close() -> None:
    """Close what ``opened`` opened in this process, such as at the end of a test."""
    with _lock:
        found = _opened.pop(os.getpid(), None)
    if found is not None:
        found[1].close()


def settings_of_host() -> dict[str, Any]:
    """Esclusa's settings: those of ``ESCLUSA`` in Django's, and its database as the store."""
    given: dict[str, Any] = dict(getattr(settings, "ESCLUSA", {}))
    if not given.get("pipelines"):
        raise ImproperlyConfigured(
            'ESCLUSA names no pipeline: ESCLUSA = {"pipelines": ["shop.pipeline:app"]}'
        )
    if "store" not in given:
        given["store"] = store_url(settings.DATABASES["default"])
    return given


def store_url(database: dict[str, Any]) -> str:
    """The URL of a database of Django's settings."""
    engine = str(database["ENGINE"]).rpartition(".")[2]
    if engine == "sqlite3":
        return f"sqlite:///{database['NAME']}"
    if engine not in ("postgresql", "postgis"):
        raise ImproperlyConfigured(
            f"records are kept in PostgreSQL or SQLite, not {engine}; name another store:"
            ' ESCLUSA = {"store": "postgresql://…"}'
        )
    user, password = (quote(str(database.get(n) or ""), safe="") for n in ("USER", "PASSWORD"))
    host, port = str(database.get("HOST") or "localhost"), str(database.get("PORT") or "5432")
    who = f"{user}:{password}@" if password else f"{user}@" if user else ""
    if host.startswith("/"):  # the folder of a socket
        name = quote(str(database["NAME"]))
        return f"postgresql://{who}/{name}?host={quote(host, safe='')}&port={port}"
    return f"postgresql://{who}{host}:{port}/{quote(str(database['NAME']))}"
