"""The numbers of a folder as a file: one row per number, and the statements as tables."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Literal

from esclusa import one_of
from esclusa.exports import Column, encode
from esclusa.pipelines.documents.records import HELD, Documento, Extraccion

ExportFormat = Literal["csv", "xlsx", "parquet", "json"]
FORMATS: tuple[ExportFormat, ...] = ("csv", "xlsx", "parquet", "json")
MEDIA_TYPES: dict[ExportFormat, str] = {
    "csv": "text/csv; charset=utf-8",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "parquet": "application/vnd.apache.parquet",
    "json": "application/json",
}
COLUMNS = (
    Column("document"),
    Column("organisation"),
    Column("statement"),
    Column("section"),
    Column("label"),
    Column("period"),
    Column("column"),
    Column("value", "decimal"),
    Column("currency"),
    Column("scale", "int"),
    Column("is_total", "bool"),
    Column("printed"),
    Column("corrected", "bool"),
    Column("review"),
    Column("value_as_read", "decimal"),
    Column("confidence", "float"),
    Column("page", "int"),
    Column("x0", "float"),
    Column("y0", "float"),
    Column("x1", "float"),
    Column("y1", "float"),
    Column("class"),
    Column("generation"),
    Column("id"),
)


@dataclass
class StatementTable:
    """A statement of a document: rows by label, and a column for each period."""

    document: str
    title: str
    currency: str | None
    scale: int | None
    columns: list[str] = field(default_factory=list)
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "document": self.document,
            "title": self.title,
            "currency": self.currency,
            "scale": self.scale,
            "columns": self.columns,
            "rows": [
                {
                    "section": row["section"],
                    "label": row["label"],
                    "values": {n: _plain(v) for n, v in row["values"].items()},
                }
                for row in self.rows.values()
            ],
        }


async def documents_of(records: Any, folio_id: str) -> AsyncIterator[list[dict[str, Any]]]:
    """Yield the numbers of each document that was read; memory is bounded by one document."""
    where = {"folio_id": folio_id, "status": one_of("DONE", *HELD)}
    async for doc in records.each(Documento, where):
        found = records.each(Extraccion, {"documento_id": doc.id}, order="position")
        rows = [
            _row(doc, each)
            async for each in found
            if each.revision == doc.revision and each.type == "LINE_ITEM_VALUE"
        ]
        if rows:
            yield rows


def _row(doc: Documento, found: Extraccion) -> dict[str, Any]:
    place = found.page_refs[0] if found.page_refs else {}
    box: dict[str, float] = next(iter(place.get("boxes", ())), {})
    corners = {name: box.get(name) for name in ("x0", "y0", "x1", "y1")} if box else {}
    as_read = _decimal(found.value)
    return {
        "document": found.gcs_uri,
        "organisation": found.ORG_NAME,
        "statement": found.STATEMENT_TITLE,
        "section": found.SECTION_HEADER,
        "label": found.LINE_ITEM_NAME,
        "period": found.REPORTING_PERIOD or found.COLUMN_YEAR,
        "column": found.TABLE_COLUMN_HEADER,
        "value": _decimal(found.corrected_value) if found.corrected_value else as_read,
        "currency": found.CURRENCY,
        "scale": found.UNITS_SCALE,
        "is_total": found.TOTAL_LABEL is not None,
        "printed": found.LINE_ITEM_VALUE,
        "corrected": found.review == "corrected",
        "review": found.review,
        "value_as_read": as_read,
        "confidence": found.confidence,
        "page": place.get("page"),
        **corners,
        "class": doc.doc_type,
        "generation": found.generation,
        "id": found.id,
        "row_ref": found.TABLE_ROW_REF,
        "cell_ref": found.TABLE_CELL_REF,
    }


def _decimal(text: str | None) -> Decimal | None:
    try:
        return None if text is None else Decimal(text)
    except InvalidOperation:
        return None


def tables_of(rows: Sequence[dict[str, Any]]) -> list[StatementTable]:
    """Return the statements of one document, with a row per label and a column per period."""
    tables: dict[str, StatementTable] = {}
    headings: dict[tuple[str, str], str] = {}
    for row in rows:
        title = row["statement"] or row["class"] or "other"
        table = tables.setdefault(
            title, StatementTable(row["document"], title, row["currency"], row["scale"])
        )
        place = (row["cell_ref"] or "").rpartition(".")[2]
        part = (row["row_ref"] or row["id"]).partition(".")[0]
        heading = headings.setdefault(
            (f"{title}\0{part}\0{place}", row["period"] or ""), _heading(table, row, headings)
        )
        at = row["row_ref"] or row["id"]
        line = table.rows.setdefault(
            at, {"section": row["section"], "label": row["label"], "values": {}}
        )
        while heading in line["values"]:  # several columns of a period that is not known
            name, _, number = heading.rpartition(" #")
            heading = f"{name} #{int(number) + 1}" if name else f"{heading} #2"
        if heading not in table.columns:
            table.columns.append(heading)
        line["values"][heading] = row["value"]
    return list(tables.values())


def _heading(table: StatementTable, row: dict[str, Any], known: dict[tuple[str, str], str]) -> str:
    """Return the heading of a column: its period, with its own words if another has that period."""
    period, words = row["period"], row["column"]
    if period is None:
        return words or "value"
    place = (row["cell_ref"] or "").rpartition(".")[2]
    others = {
        key.rpartition("\0")[2]
        for (key, end), heading in known.items()
        if key.startswith(f"{table.title}\0") and end == period and heading == period
    }
    return f"{period} {words}" if others - {place} and words and words != period else period


async def encoded(records: Any, folio_id: str, form: ExportFormat) -> AsyncIterator[bytes]:
    """Yield the bytes of a file in any format but xlsx, which is written to a file."""
    if form in ("csv", "parquet"):

        async def rows() -> AsyncIterator[dict[str, Any]]:
            async for document in documents_of(records, folio_id):
                for row in document:
                    yield row

        async for chunk in encode(COLUMNS, rows(), "csv" if form == "csv" else "parquet"):
            yield chunk
        return
    names = [column.name for column in COLUMNS]
    yield b'{"folio_id": ' + json.dumps(folio_id).encode() + b', "documents": ['
    between = b"\n"
    async for document in documents_of(records, folio_id):
        body = {
            "document": document[0]["document"],
            "numbers": [{name: _plain(row.get(name)) for name in names} for row in document],
            "statements": [table.as_json() for table in tables_of(document)],
        }
        yield between + json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        between = b",\n"
    yield b"\n]}\n"


def _plain(value: Any) -> Any:
    return format(value, "f") if isinstance(value, Decimal) else value


async def write_export(records: Any, folio_id: str, form: ExportFormat, path: Path) -> int:
    """Write the file; return the number of rows. Raises SettingsError without its extra."""
    if form == "xlsx":
        from esclusa.pipelines.documents.workbook import Workbook  # noqa: PLC0415 - an extra

        book = Workbook(path, [column.name for column in COLUMNS])
        try:
            async for document in documents_of(records, folio_id):
                await asyncio.to_thread(book.add, document, tables_of(document))
        finally:
            await asyncio.to_thread(book.close)
        return book.rows
    with path.open("wb") as out:
        async for chunk in encoded(records, folio_id, form):
            await asyncio.to_thread(out.write, chunk)
    return -1
