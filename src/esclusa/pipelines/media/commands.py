"""The group ``esclusa media``: run, import, retry, summary."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from esclusa.cli import FAILED, OK, Group, Session, print_report, run_cycle
from esclusa.imports import ImportReport, read_file
from esclusa.pipelines.media import views
from esclusa.pipelines.media.actions import ErrorType
from esclusa.pipelines.media.publications import COLUMNS, Publications
from esclusa.pipelines.media.records import Publication

if TYPE_CHECKING:
    from esclusa import Runtime

TYPES = get_args(ErrorType)


@click.group(cls=Group)
def media() -> None:
    """Media of webhook publications, downloaded before their links expire."""


@media.command()
@click.option("--limit", "-n", type=click.IntRange(min=1), help="Take at most this many.")
@click.pass_obj
def run(session: Session, limit: int | None) -> int:
    """Download all due media once. Exit code 5 if some ended in error."""
    return run_cycle(session, "media.download", limit=limit)


@media.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.pass_obj
def import_(session: Session, file: Path) -> int:
    """Add publications from FILE (CSV, JSON or NDJSON).

    Columns: post_id, tipo_item, imagen_url, imagen_local, media_id, page_id, nombre_nora, mensaje.
    Invalid rows are reported by number and skipped. A post with the same link or media_id again is
    a duplicate.
    """

    async def import_file(runtime: Runtime) -> ImportReport:
        publications = Publications(runtime.records, session.who)
        report = await publications.import_rows(read_file(file, COLUMNS))
        if report.created:
            await runtime.operations(session.who).note(
                "add", Publication.kind.table, report.created
            )
        return report

    answer = session.work(import_file).answer()
    session.show(answer, lambda screen: print_report(screen, answer))
    return FAILED if answer["errors"] else OK


@media.command()
@click.option(
    "--type", "error_type", type=click.Choice(TYPES), help="Only last errors of this type."
)
@click.option("--reason", default="", help="Reason for the history and the audit.")
@click.option("--dry-run", is_flag=True, help="Only count them.")
@click.pass_obj
def retry(session: Session, error_type: str | None, reason: str, dry_run: bool) -> int:
    """Retry publications in error: back to pending, attempts at 0."""
    where = {"status": "error"}

    async def retry_errors(runtime: Runtime) -> dict[str, Any]:
        found = runtime.records.each(Publication, where)
        types = [(each.last_error or {}).get("type") async for each in found]
        matched = sum(error_type in (None, type) for type in types)
        acted = await runtime.operations(session.who).act(
            "media.retry", params={"type": error_type}, reason=reason, dry_run=dry_run
        )
        return {
            "verb": "retry",
            "table": Publication.kind.table,
            "matched": matched,
            "moved": acted.moved,
            "dry_run": dry_run,
        }

    answer = session.look(retry_errors)
    of_type = f" of type {error_type}" if error_type else ""
    session.show(answer, lambda screen: screen.line(_retry_text(answer, of_type)))
    return OK


def _retry_text(answer: dict[str, Any], of_type: str) -> str:
    matched, moved = answer["matched"], answer["moved"]
    errors = f"{matched:,} error{'' if matched == 1 else 's'}{of_type}"
    if answer["dry_run"]:
        return f"{errors} would go back to pending"
    if matched == 0:
        return f"no errors{of_type}"
    return f"{errors}, {moved:,} {'goes' if moved == 1 else 'go'} back to pending"


@media.command()
@click.pass_obj
def summary(session: Session) -> int:
    """Show publications with media by state, with their average attempts."""

    async def read_summary(runtime: Runtime) -> dict[str, Any]:
        return await views.summary(runtime.records)

    answer = session.look(read_summary)
    rows = [
        (
            item["media_status"],
            item["total"],
            None if item["avg_intentos"] is None else f"{item['avg_intentos']:.2f}",
        )
        for item in answer["items"]
    ]
    session.show(
        answer,
        lambda screen: screen.table(
            ("state", ">total", ">average attempts"), rows, empty="no publication has media"
        ),
    )
    return OK
