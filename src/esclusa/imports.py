"""Reads rows from files and request bodies: CSV, a JSON array, or NDJSON.

Rows are read one by one. Invalid rows are reported by their number.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
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


# How platforms write times, besides ISO 8601, RFC 2822 and seconds since 1970.
_TIME_FORMATS = (
    "%a %b %d %H:%M:%S %z %Y",  # X: Mon Jan 05 12:00:00 +0000 2026
    "%I:%M %p · %b %d, %Y",  # X, as its pages show it
    "%Y/%m/%d %H:%M:%S",
    "%Y/%m/%d %H:%M",
    "%Y/%m/%d",
    "%b %d, %Y",  # YouTube: Jan 5, 2026
    "%B %d, %Y",
    "%b %d, %Y, %I:%M %p",
    "%B %d, %Y at %I:%M %p",  # Facebook
    "%d %b %Y",
    "%d %B %Y",
)
# From here on, a number counts milliseconds: as seconds it would be after the year 2200.
_MILLISECONDS = 7_258_118_400


class BadFile(EsclusaError):
    """The file as a whole cannot be read."""


@dataclass(frozen=True, slots=True)
class ImportedRow:
    """One row: its values, or the fault if it cannot be read.

    Rows are numbered from 1. A CSV header is not counted; NDJSON counts lines.
    """

    number: int
    values: dict[str, Any] | None
    fault: str | None = None


@dataclass
class ImportReport:
    """The result of an import: how many rows are new, how many exist, and the faults by row."""

    created: int = 0
    known: int = 0
    errors: list[dict[str, Any]] = field(default_factory=list)
    # What is doubtful in rows that were taken; the first thousand.
    warnings: list[dict[str, Any]] = field(default_factory=list)

    def refuse(self, row: int, error: str) -> None:
        self.errors.append({"row": row, "error": error})

    def warn(self, row: int, warning: str) -> None:
        if len(self.warnings) < 1000:
            self.warnings.append({"row": row, "warning": warning})

    def count(self, answers: Iterable[Inserted | Duplicate]) -> None:
        """Count the store's answers to valid rows."""
        new = [isinstance(answer, Inserted) for answer in answers]
        self.created += new.count(True)
        self.known += new.count(False)

    def answer(self) -> dict[str, Any]:
        shown = {"created": self.created, "known": self.known, "errors": self.errors}
        return shown | ({"warnings": self.warnings} if self.warnings else {})


def read_time(text: str) -> datetime | None:
    """The time that a text means: ISO 8601, a number of seconds, or as platforms write it.

    Without a zone it is in UTC. None if it cannot be read; ``05/01/2026`` is day or month first, so
    it cannot.
    """
    text = text.strip().removesuffix(" UTC").strip()
    try:
        found = _parsed_time(text)
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _parsed_time(text: str) -> datetime:
    if not text.strip("0123456789.") and len(text.partition(".")[0]) >= 9:
        number = float(text)
        seconds = number / 1000 if number >= _MILLISECONDS else number
        return datetime.fromtimestamp(seconds, UTC)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        pass
    for form in _TIME_FORMATS:
        try:
            return datetime.strptime(text, form)  # noqa: DTZ007 - the caller adds a missing zone
        except ValueError:
            continue
    return parsedate_to_datetime(text)


def format_of(path: Path) -> Format:
    """The format of a file, by the end of its name. Raises BadFile."""
    found = _BY_SUFFIX.get(path.suffix.lower())
    if found is None:
        raise BadFile(f"{path}: its name must end in {', '.join(_BY_SUFFIX)}")
    return found


def read_file(path: Path, columns: Collection[str] = ()) -> Iterator[ImportedRow]:
    """The rows of a file, in the format of its name. CSV and NDJSON need bounded memory.

    Raises BadFile if no row can be read, or if a CSV header has a column that is not in ``columns``
    (if given). If the file becomes unreadable after some rows, which may be imported by then, the
    last row has the fault.
    """
    form, number = format_of(path), 0
    try:
        with path.open(encoding="utf-8-sig", newline="") as text:
            for row in _read(text, form, str(path), columns):
                yield row
                number = row.number
    except (BadFile, UnicodeDecodeError, OSError) as error:
        fault = error if isinstance(error, BadFile) else BadFile(f"{path}: {_cause(path, error)}")
        if not number:
            raise fault from None
        yield ImportedRow(number + 1, None, f"it cannot be read from here on: {fault}")


def _cause(path: Path, error: UnicodeDecodeError | OSError) -> str:
    """The cause, with the line: the decoder's position counts from the start of its buffer."""
    if isinstance(error, OSError):
        return str(error.strerror)
    with path.open("rb") if path.is_file() else nullcontext(()) as lines:  # not a pipe
        for number, line in enumerate(lines, 1):
            try:
                line.decode()
            except UnicodeDecodeError as found:
                return (
                    f"line {number} is not UTF-8 text ({found.reason} at its byte "
                    f"{found.start + 1}); save the file as UTF-8"
                )
    return f"it is not UTF-8 text ({error.reason})"


def format_of_body(body: bytes, content_type: str) -> Format:
    """The format of a request's body: by its content type, otherwise by its content.

    Several lines that begin with an object are NDJSON, unless they are one JSON object.
    """
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
    delimiter = max(",;\t", key=head.count)  # spreadsheets use any of them
    reader = csv.DictReader(chain([head], text), restkey="", delimiter=delimiter)
    try:
        names = [name.strip() for name in reader.fieldnames or ()]
        if not names or not all(names):
            raise BadFile(f"{where}: its first line must name every column")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise BadFile(f"{where}: its first line names {twice} twice")
        if unknown := [name for name in names if columns and name not in columns]:
            raise BadFile(
                f"{where}: {', '.join(unknown)}: there is no such column; "
                f"there are {', '.join(columns)}"
            )
        for number, row in enumerate(reader, 1):
            if "" in row:
                yield ImportedRow(
                    number, None, f"it has more values than the {len(names)} columns of the header"
                )
            else:  # an empty cell is None
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
            f"{where}: it must be a JSON array of objects, one object, "
            "or one object per line (NDJSON)"
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
    "read_time",
]
