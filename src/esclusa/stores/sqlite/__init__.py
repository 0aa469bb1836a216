"""Records in one SQLite file."""

from esclusa.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
