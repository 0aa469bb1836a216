"""The names of an extraction's fields."""

from __future__ import annotations

FIELDS = (
    "LINE_ITEM_NAME",
    "LINE_ITEM_VALUE",
    "COLUMN_YEAR",
    "SECTION_HEADER",
    "TOTAL_LABEL",
    "CURRENCY",
    "UNITS_SCALE",
    "REPORTING_PERIOD",
    "ORG_NAME",
    "STATEMENT_TITLE",
    "TABLE_COLUMN_HEADER",
    "TABLE_ROW_REF",
    "TABLE_CELL_REF",
)
