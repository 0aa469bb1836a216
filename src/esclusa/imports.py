"""Rows from outside: CSV (with commas, semicolons or tabs), a JSON array, or one JSON object per line; read one by one, each fault
named by its row."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from esclusa.model.errors import EsclusaError
from esclusa.model.settlement import Duplicate, Inserted

Format = Literal["csv", "json", "ndjson"]
_BY_SUFFIX: dict[str, Format] = {
    ".csv": "csv",
    ".json": "json",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
}


class BadFile(EsclusaError):
    """The file as a whole cannot be read."""


@dataclass(frozen=True, slots=True)
class ImportedRow:
    """One row, numbered from 1 (a CSV header is not a row; of NDJSON it is the line): its values, or why it has none."""

    number: int
    values: dict[str, Any] | None
    fault: str | None = None


@dataclass
class ImportReport:
    """What became of the rows: how many are new, how many were known, and the fault of each that was refused."""

    created: int = 0
    known: int = 0
    errors: list[dict[str, Any]] = field(default_factory=list)

    def refuse(self, row: int, error: str) -> None:
        self.errors.append({"row": row, "error": error})

    def count(self, answers: Iterable[Inserted | Duplicate]) -> None:
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


def read_file(path: Path, columns: Collection[str] = ()) -> Iterator[ImportedRow]:
    """The rows of a file, by the format that its name says. CSV and NDJSON are read as they come: bounded memory. A file that
    breaks off amid its rows says so in a last one, for those before it may be kept by then. Raises BadFile if there is none before,
    and if a CSV's header names a column that is none of ``columns``, where they are given: it would be the fault of every row."""
    form, number = format_of(path), 0
    try:
        with path.open(encoding="utf-8-sig", newline="") as text:
            for row in _read(text, form, str(path), columns):
                yield row
                number = row.number
    except (BadFile, UnicodeDecodeError, OSError) as error:
        fault = BadFile(f"{path}: {_why(path, error)}") if not isinstance(error, BadFile) else error
        if not number:
            raise fault from None
        yield ImportedRow(number + 1, None, f"from here on it cannot be read: {fault}")


def _why(path: Path, error: UnicodeDecodeError | OSError) -> str:
    """Where in a file that is not as it should be the fault is: the decoder counts from the beginning of its buffer."""
    if isinstance(error, OSError):
        return str(error.strerror)
    with (
        path.open("rb") if path.is_file() else nullcontext(()) as lines
    ):  # a pipe cannot be read again
        for number, line in enumerate(lines, 1):
            try:
                line.decode()
            except UnicodeDecodeError as found:
                return f"line {number} is not UTF-8 text ({found.reason} at byte {found.start + 1} of it); save it as UTF-8"
    return f"it is not UTF-8 text ({error.reason})"


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


def read_bytes(body: bytes, form: Format) -> Iterator[ImportedRow]:
    """The rows of a request's body."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadFile(f"the body is not UTF-8 text: {error.reason} at byte {error.start}") from None
    yield from _read(io.StringIO(text, newline=""), form, "the body")


def _read(
    text: io.TextIOBase | Any, form: Format, where: str, columns: Collection[str] = ()
) -> Iterator[ImportedRow]:
    if form == "csv":
        yield from _csv(text, where, columns)
    elif form == "ndjson":
        for number, line in enumerate(text, 1):
            if line.strip():
                yield _parsed(number, line)
    else:
        yield from _json(text.read(), where)


def _csv(text: Any, where: str, columns: Collection[str]) -> Iterator[ImportedRow]:
    head = text.readline()
    reader = csv.DictReader(
        chain([head], text), restkey="", delimiter=max(",;\t", key=head.count)
    )  # as spreadsheets write it
    try:
        names = [name.strip() for name in reader.fieldnames or ()]
        if not names or not all(names):
            raise BadFile(f"{where}: its first line must name every column")
        if len(set(names)) < len(names):
            raise BadFile(
                f"{where}: its first line names {next(n for n in names if names.count(n) > 1)} twice"
            )
        if unknown := [name for name in names if columns and name not in columns]:
            raise BadFile(
                f"{where}: {', '.join(unknown)}: there is no such column; there are {', '.join(columns)}"
            )
        for number, row in enumerate(reader, 1):
            if "" in row:
                yield ImportedRow(
                    number, None, f"it has more values than the {len(names)} columns of the header"
                )
            else:  # an empty cell is no value
                yield ImportedRow(
                    number,
                    {
                        name.strip(): value.strip() or None if value else None
                        for name, value in row.items()
                    },
                )
    except csv.Error as error:
        raise BadFile(f"{where}: line {reader.line_num} is not CSV: {error}") from None


def _json(text: str, where: str) -> Iterator[ImportedRow]:
    try:
        read = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{where}: it is not JSON: {error}") from None
    if isinstance(read, dict):
        read = [read]
    if not isinstance(read, list):
        raise BadFile(
            f"{where}: it must be a JSON array of objects, one object, or one object per line (NDJSON)"
        )
    for number, value in enumerate(read, 1):
        yield _object(number, value)


def _parsed(number: int, line: str) -> ImportedRow:
    try:
        return _object(number, json.loads(line, parse_constant=_no_constant))
    except (ValueError, RecursionError) as error:
        return ImportedRow(number, None, f"it is not JSON: {error}")


def _object(number: int, value: Any) -> ImportedRow:
    return (
        ImportedRow(number, value)
        if isinstance(value, dict)
        else ImportedRow(number, None, f"a row is an object, not {type(value).__name__}")
    )


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


__all__ = [
    "BadFile",
    "Format",
    "ImportReport",
    "ImportedRow",
    "format_of",
    "format_of_body",
    "read_bytes",
    "read_file",
]
