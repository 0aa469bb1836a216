"""``esclusa tenders restore``: put the rows of an exported month back into the archive."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from esclusa import BadQuery, NotFound, Runtime
from esclusa.pipelines.tenders.archive import ARCHIVED, open_export_target
from esclusa.pipelines.tenders.month_manifest import (
    exported_files,
    note_export,
    take_over_exports,
)
from esclusa.pipelines.tenders.settings import TendersSettings

_MONTH = re.compile(r"\d{4}-(0[1-9]|1[0-2])")
# The tables that have an archive, by their names in the declaration.
TABLES = tuple(record.kind.as_declared.table for record, _ in ARCHIVED)


def check_month(text: str) -> str:
    """Return a month as it is named in exports. Raises BadQuery."""
    if not _MONTH.fullmatch(text):
        raise BadQuery(f"{text!r:.40} is not a month such as 2026-03")
    return text


async def restore_month(
    runtime: Runtime, month: str, tables: Sequence[str], who: str
) -> list[dict[str, Any]]:
    """Put the rows of a month that are not in the archive back into it; one answer per file.

    Files of the team's own worker are read as well. Rows that are there stay as they are, so that
    an interrupted restore is continued by the next. Raises NotFound if no file is known.
    """
    check_month(month)
    settings: TendersSettings = runtime.settings_of("tenders")
    keep = timedelta(days=settings.archive_drop_after_days)
    answers: list[dict[str, Any]] = []
    async with open_export_target(runtime.artifacts, settings) as source:
        for record, dates in ARCHIVED:
            if record.kind.as_declared.table not in (tables or TABLES):
                continue
            archiver, records = runtime.archiver, runtime.records
            zone = settings.timezone
            await take_over_exports(archiver, records, record, dates[-1], zone, month)
            for file in await exported_files(records, record, month):
                done = await archiver.restore(record, file, source=source, keep=keep)
                now = await runtime.engine.clock.sync()
                again = await records.get(type(file), file.id)
                await note_export(records, again or file, who, now)
                answers.append(
                    {
                        "table": record.kind.table,
                        "path": done.path,
                        "restored": done.restored,
                        "known": done.known,
                    }
                )
    if not answers:
        raise NotFound(f"no verified file of {month} is known; see the table archive_exports")
    await runtime.operations(who).note(
        "restore", ", ".join(tables or TABLES), sum(a["restored"] for a in answers)
    )
    return answers
