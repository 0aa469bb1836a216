"""Rows from outside: CSV, a JSON array, or one JSON object per line; read one by one, each fault named by its row."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from esclusa.model.errors import EsclusaError
from esclusa.model.settlement import Inserted, Known

Format = Literal["csv", "json", "ndjson"]
_BY_SUFFIX: dict[str, Format] = {".csv": "csv", ".json": "json", ".ndjson": "ndjson", ".jsonl": "ndjson"}


class BadFile(EsclusaError):
    """The file as a whole cannot be read."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row, numbered from 1 (a CSV header is not a row; of NDJSON it is the line): its values, or why it has none."""

    number: int
    values: dict[str, Any] | None
    fault: str | None = None


@dataclass
class Report:
    """What became of the rows: how many are new, how many were known, and the fault of each that was refused."""

    created: int = 0
    known: int = 0
    errors: list[dict[str, Any]] = field(default_factory=list)

    def refuse(self, row: int, error: str) -> None:
        self.errors.append({"row": row, "error": error})

    def count(self, answers: Iterable[Inserted | Known]) -> None:
        """Count what the store answered to rows that were well-formed."""
        for answer in answers:
            if isinstance(answer, Inserted):
                self.created += 1
            else:
                self.known += 1

    def answer(self) -> dict[str, Any]:
        return {"created": self.created, "known": self.known, "errors": self.errors}


def format_of(path: Path) -> Format:
    """The format that a file's name says. Raises BadFile if it says none."""
    found = _BY_SUFFIX.get(path.suffix.lower())
    if found is None:
        raise BadFile(f"{path}: its name must end in {', '.join(_BY_SUFFIX)}")
    return found


def read_file(path: Path) -> Iterator[Row]:
    """The rows of a file, by the format that its name says. CSV and NDJSON are read as they come: bounded memory."""
    form = format_of(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as text:
            yield from _read(text, form, str(path))
    except UnicodeDecodeError as error:
        raise BadFile(f"{path}: it is not UTF-8 text ({error.reason} at byte {error.start})") from None
    except OSError as error:
        raise BadFile(f"{path}: {error.strerror}") from None


def format_of_body(body: bytes, content_type: str) -> Format:
    """The format of a request's body: what its type says; else objects are one per line, unless they are one object over lines."""
    if any(word in content_type.lower() for word in ("ndjson", "jsonl")):
        return "ndjson"
    text = body.strip(b"\xef\xbb\xbf \t\r\n")
    if not text.startswith(b"{") or b"\n" not in text:
        return "json"
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return "ndjson"
    return "json"


def read_bytes(body: bytes, form: Format) -> Iterator[Row]:
    """The rows of a request's body."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadFile(f"the body is not UTF-8 text: {error.reason} at byte {error.start}") from None
    yield from _read(io.StringIO(text, newline=""), form, "the body")


def _read(text: io.TextIOBase | Any, form: Format, where: str) -> Iterator[Row]:
    if form == "csv":
        yield from _csv(text, where)
    elif form == "ndjson":
        for number, line in enumerate(text, 1):
            if line.strip():
                yield _parsed(number, line)
    else:
        yield from _json(text.read(), where)


def _csv(text: Any, where: str) -> Iterator[Row]:
    reader = csv.DictReader(text, restkey="")
    try:
        if not reader.fieldnames or any(not (name or "").strip() for name in reader.fieldnames):
            raise BadFile(f"{where}: its first line must name every column")
        for number, row in enumerate(reader, 1):
            if "" in row:
                yield Row(number, None, f"it has more values than the {len(reader.fieldnames)} columns of the header")
            else:  # an empty cell is no value
                yield Row(number, {name.strip(): value.strip() or None if value else None for name, value in row.items()})
    except csv.Error as error:
        raise BadFile(f"{where}: line {reader.line_num} is not CSV: {error}") from None


def _json(text: str, where: str) -> Iterator[Row]:
    try:
        read = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{where}: it is not JSON: {error}") from None
    if isinstance(read, dict):
        read = [read]
    if not isinstance(read, list):
        raise BadFile(f"{where}: it must be a JSON array of objects, one object, or one object per line (NDJSON)")
    for number, value in enumerate(read, 1):
        yield _object(number, value)


def _parsed(number: int, line: str) -> Row:
    try:
        return _object(number, json.loads(line, parse_constant=_no_constant))
    except (ValueError, RecursionError) as error:
        return Row(number, None, f"it is not JSON: {error}")


def _object(number: int, value: Any) -> Row:
    return Row(number, value) if isinstance(value, dict) else Row(number, None, f"a row is an object, not {type(value).__name__}")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


__all__ = ["BadFile", "Format", "Report", "Row", "format_of", "format_of_body", "read_bytes", "read_file"]
