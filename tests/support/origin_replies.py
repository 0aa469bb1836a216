"""A database and a bucket as the service that ``replies`` replaces has left them.

Written from the origin's own rules, without any code of the pipeline: random ids of 20 characters,
no field of Esclusa, and the types of all its versions.
"""

from __future__ import annotations

import hashlib
import json
import random
import string
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw

UPLOADED = datetime(2026, 1, 8, 12, tzinfo=UTC)
_LETTERS = string.ascii_letters + string.digits


class Origin:
    """Documents by collection and id."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._minutes = 0
        self.posts: dict[str, dict[str, Any]] = {}
        self.jobs: dict[str, dict[str, Any]] = {}

    def _id(self) -> str:
        return "".join(self._random.choices(_LETTERS, k=20))

    def post(self, post_id: Any, status: str = "noreplies", **fields: Any) -> str:
        """Add a post as ``upload_to_firestore.py`` writes it since 2026-01-30; return its id.

        A field that is ``...`` is left out.
        """
        self._minutes += 1
        document = {
            "platform": "twitter",
            "post_id": post_id,
            "country": "honduras",
            "candidate_id": "hnd09sosa",
            "status": status,
            "created_at": UPLOADED + timedelta(minutes=self._minutes),
            "post_created_at": datetime(2025, 11, 20, 15, tzinfo=UTC),
            "max_posts_replies": 20,
            "replies_count": 12,
            "start_date": "2025-11-12",
            "end_date": "2025-12-05",
            **({} if status == "noreplies" else {"updated_at": UPLOADED + timedelta(hours=1)}),
            **fields,
        }
        id = self._id()
        self.posts[id] = {name: value for name, value in document.items() if value is not ...}
        return id

    def job(self, post: str, status: str = "pending", **fields: Any) -> str:
        """Add a job as ``save_pending_job`` writes it; return its id."""
        self._minutes += 1
        created = UPLOADED + timedelta(hours=2, minutes=self._minutes)
        of = self.posts[post]
        document = {
            "job_id": hashlib.sha256(f"{post} {self._minutes}".encode()).hexdigest(),
            "post_doc_id": post,
            "post_id": str(of.get("post_id", "unknown")),
            "platform": of["platform"],
            "country": of.get("country", "unknown"),
            "candidate_id": of.get("candidate_id", "unknown"),
            "max_posts_replies": 20,
            "sort_by": "time",
            "status": status,
            "created_at": created,
            "updated_at": created,
            **fields,
        }
        id = self._id()
        self.jobs[id] = {name: value for name, value in document.items() if value is not ...}
        return id

    async def write_firestore(self, client: Any) -> None:
        for table, documents in (("posts", self.posts), ("pending_jobs", self.jobs)):
            for id, fields in documents.items():
                await client.collection(table).document(id).set(fields)

    async def write_postgres(self, connection: Any) -> None:
        """Write the same rows to tables with the columns that the documents have."""
        await connection.execute(TABLES)
        for table, documents in (("posts", self.posts), ("pending_jobs", self.jobs)):
            columns = COLUMNS[table]
            names = ", ".join(["id", *columns])
            places = ", ".join(f"${n}" for n in range(1, len(columns) + 2))
            rows = [
                (id, *(fitting(fields.get(name), type) for name, type in columns.items()))
                for id, fields in documents.items()
            ]
            await connection.executemany(f"INSERT INTO {table} ({names}) VALUES ({places})", rows)

    def write_sqlite(self, file: Path) -> None:
        """Write the same rows. A column there holds values of every type; a time is text."""
        for table, documents in (("posts", self.posts), ("pending_jobs", self.jobs)):
            columns = COLUMNS[table]
            typed = ", ".join(
                f"{name} {'text' if type == 'time' else type}" for name, type in columns.items()
            )
            in_sqlite(file, f"CREATE TABLE {table} (id text PRIMARY KEY, {typed})")
            places = ", ".join("?" * (len(columns) + 1))
            for id, fields in documents.items():
                values = [as_sqlite(fields.get(name)) for name in columns]
                in_sqlite(file, f"INSERT INTO {table} VALUES ({places})", id, *values)


def in_sqlite(file: Path, statement: str, *values: Any) -> list[dict[str, Any]]:
    """Run a statement and return its rows.

    By the library that Esclusa uses: two SQLite libraries in one process ignore each other's locks.
    """
    with closing(apsw.Connection(str(file))) as connection:
        connection.set_busy_timeout(10_000)
        cursor = connection.execute(statement, values)
        return [
            dict(zip((each[0] for each in cursor.get_description()), row, strict=True))
            for row in cursor
        ]


def as_sqlite(value: Any) -> Any:
    """A value as Python's own adapters write it: a time is text with a ``T``."""
    return value.isoformat() if isinstance(value, datetime) else value


def fitting(value: Any, type: str) -> Any:
    """A value as a typed column can hold it: text that is no number or time is null there."""
    if value is None or type == "text":
        return None if value is None else str(value)
    if type == "integer":
        return int(value) if str(value).lstrip("-").isdigit() else None
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    return value if value.tzinfo else value.replace(tzinfo=UTC)


COLUMNS: dict[str, dict[str, str]] = {
    "posts": {
        "platform": "text",
        "post_id": "text",
        "country": "text",
        "candidate_id": "text",
        "status": "text",
        "created_at": "text",  # the first uploads wrote text
        "post_created_at": "time",
        "updated_at": "time",
        "replies_count": "integer",
        "max_posts_replies": "integer",
        "max_replies": "integer",
        "start_date": "text",
        "end_date": "text",
        "note": "text",
    },
    "pending_jobs": {
        "job_id": "text",
        "post_doc_id": "text",
        "post_id": "text",
        "platform": "text",
        "country": "text",
        "candidate_id": "text",
        "max_posts_replies": "integer",
        "max_posts": "integer",
        "sort_by": "text",
        "status": "text",
        "retry_count": "integer",
        "created_at": "time",
        "updated_at": "time",
        "execution_log_file": "text",
    },
}
TABLES = "\n".join(
    f"CREATE TABLE {table} (id text PRIMARY KEY, "
    + ", ".join(
        f"{name} {'timestamptz' if type == 'time' else type}" for name, type in columns.items()
    )
    + ");"
    for table, columns in COLUMNS.items()
)


def checksum(fields: dict[str, Any]) -> str:
    """A checksum of a document's own fields, with their types."""
    plain = {name: f"{type(value).__name__} {value!s}" for name, value in fields.items()}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def save(folder: Path, path: str, content: Any) -> Path:
    """Write a file as the origin's code does: indented, not escaped."""
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False))
    return file


def files_below(folder: Path) -> dict[str, tuple[int, str]]:
    """Every file below a folder: when it was written, and its checksum."""
    return {
        str(file.relative_to(folder)): (
            file.stat().st_mtime_ns,
            hashlib.sha256(file.read_bytes()).hexdigest(),
        )
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }
