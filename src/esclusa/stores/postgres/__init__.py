"""Records in PostgreSQL."""

from esclusa.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
