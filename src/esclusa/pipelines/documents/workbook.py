"""An XLSX file of numbers: one sheet with all of them, and one for each statement."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esclusa import SettingsError

if TYPE_CHECKING:
    from esclusa.pipelines.documents.exports import StatementTable

# The most rows of a sheet, which Excel sets.
MAX_ROWS = 1_048_576
# The most statements with a sheet of their own: each holds a file open while the workbook is
# written. Further ones share a sheet.
MAX_STATEMENTS = 200
# Digits that a spreadsheet keeps of a number; a longer one is written as text.
MAX_DIGITS = 15
_FORBIDDEN = re.compile(r"[\[\]:*?/\\']")


class Workbook:
    """Writes rows as they come: memory does not grow with them. Texts are never formulas."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        try:
            import xlsxwriter  # noqa: PLC0415 - an extra
        except ImportError:
            raise SettingsError(
                "xlsx", ["it needs the package xlsxwriter: pip install 'esclusa[xlsx]'"]
            ) from None
        options = {
            "constant_memory": True,
            "strings_to_formulas": False,
            "strings_to_urls": False,
            "strings_to_numbers": False,
            "nan_inf_to_errors": True,
        }
        self._book = xlsxwriter.Workbook(str(path), options)
        self._bold = self._book.add_format({"bold": True})
        self._columns = columns
        self._names: set[str] = set()
        self.rows = 0
        self._at = MAX_ROWS
        self._numbers: Any = None
        self._statements = 0
        self._shared: Any = None
        self._shared_at = 0
        self._next_sheet()

    def _next_sheet(self) -> None:
        self._numbers = self._book.add_worksheet(self._name("Numbers"))
        self._numbers.freeze_panes(1, 0)
        self._line(self._numbers, 0, self._columns, self._bold)
        self._at = 1

    def add(self, rows: Sequence[dict[str, Any]], tables: Sequence[StatementTable]) -> None:
        """Write the numbers of a document, and its statements."""
        for row in rows:
            if self._at >= MAX_ROWS:
                self._next_sheet()
            self._line(self._numbers, self._at, [row.get(name) for name in self._columns])
            self._at += 1
            self.rows += 1
        for table in tables:
            self._statements += 1
            if self._statements <= MAX_STATEMENTS:
                self._statement(self._statement_sheet(table.title), 0, table)
                continue
            if self._shared is None or self._shared_at + len(table.rows) + 6 > MAX_ROWS:
                self._shared, self._shared_at = self._statement_sheet("More statements"), 0
            self._shared_at = 1 + self._statement(self._shared, self._shared_at, table)

    def _statement_sheet(self, title: str) -> Any:
        sheet = self._book.add_worksheet(self._name(title))
        sheet.set_column(0, 1, 44)
        sheet.set_column(2, 20, 18)
        return sheet

    def _statement(self, sheet: Any, start: int, table: StatementTable) -> int:
        """Write a statement from a row on; return the row after it."""
        self._line(sheet, start, [table.title], self._bold)
        self._line(sheet, start + 1, [table.document])
        scale = f"{table.currency or ''} × {table.scale or '?'}".strip()
        self._line(sheet, start + 2, [scale])
        self._line(sheet, start + 4, ["section", "label", *table.columns], self._bold)
        at = start + 5
        for row in table.rows.values():
            values = [row["values"].get(name) for name in table.columns]
            self._line(sheet, at, [row["section"], row["label"], *values])
            at += 1
        return at

    def _name(self, title: str) -> str:
        """Return a name for a sheet that no other has: at most 31 characters."""
        plain = _FORBIDDEN.sub(" ", title).strip() or "Statement"
        name, number = plain[:31].strip(), 1
        while name.lower() in self._names or name.lower() == "history":
            number += 1
            end = f" {number}"
            name = f"{plain[: 31 - len(end)].strip()}{end}"
        self._names.add(name.lower())
        return name

    @staticmethod
    def _line(sheet: Any, at: int, values: Sequence[Any], style: Any = None) -> None:
        for column, value in enumerate(values):
            match value:
                case None:
                    continue
                case bool():
                    sheet.write_boolean(at, column, value, style)
                case Decimal() if len(value.as_tuple().digits) > MAX_DIGITS:
                    sheet.write_string(at, column, format(value, "f"), style)
                case int() | float() | Decimal():
                    sheet.write_number(at, column, value, style)
                case _:
                    sheet.write_string(at, column, str(value)[:32_767], style)

    def close(self) -> None:
        self._book.close()
