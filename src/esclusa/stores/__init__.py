"""Stores: SQLite, PostgreSQL and Firestore behind the same protocol, chosen by URL."""

from __future__ import annotations

import re
from urllib.parse import urlsplit


def check_url(url: str) -> str:
    """The URL of a store. Raises ValueError, with the form that is right, if it is wrong."""
    if url.startswith("sqlite:"):
        path = url.removeprefix("sqlite:///")
        if path == url or not path or path == "/" or path.startswith(":memory:"):
            raise ValueError(
                "a SQLite store is sqlite:///relative.db "
                "or, with four slashes, sqlite:////absolute/path.db"
            )
    elif url.startswith("firestore:"):
        if not re.fullmatch(
            r"firestore://[a-z][a-z0-9:.-]*[a-z0-9](/(\(default\)|[a-z][a-z0-9-]*)?)?", url
        ):
            raise ValueError(
                "a Firestore store is firestore://project or firestore://project/database"
            )
    elif not url.startswith(("postgresql://", "postgres://")):
        raise ValueError(
            "a store is sqlite:///path, postgresql://user:password@host/database "
            "or firestore://project/database"
        )
    elif not urlsplit(url).path.strip("/"):
        raise ValueError(
            "a PostgreSQL store needs a database: postgresql://user:password@host/database"
        )
    return url


def without_password(url: str) -> str:
    """A URL without its password, for messages."""
    hidden = re.sub(r"(?<=://)([^:/@]*):[^@]*@", r"\1:***@", url)
    return re.sub(r"([?&]password=)[^&]*", r"\1***", hidden)
