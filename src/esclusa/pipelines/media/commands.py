"""The group ``esclusa media``: run, import, retry, summary."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from esclusa.cli import FAILED, OK
from esclusa.cli.output import print_report
from esclusa.cli.root import Group

if TYPE_CHECKING:
    from esclusa import To
    from esclusa.cli.session import Session
    from esclusa.runtime import Runtime

TYPES = (
    "timeout",
    "http_error",
    "storage_error",
    "invalid_media",
    "rejected",
    "crash",
    "invalid_record",
)
"""What ``media_last_error`` may say: the pipeline's own, then the engine's."""


@click.group(cls=Group)
def media() -> None:
    """Media of webhook publications, downloaded before their links die."""


@media.command()
@click.option(
    "--limit", "-n", type=click.IntRange(min=1), help="Take at most so many publications."
)
@click.pass_obj
def run(session: Session, limit: int | None) -> int:
    """Download what is due, once, to its end. Exit code 5 if some ended in an error."""
    from esclusa.cli.work import run_cycle  # noqa: PLC0415 - the command starts fast

    return run_cycle(session, "media.download", limit=limit)


@media.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.pass_obj
def import_(session: Session, file: Path) -> int:
    """Add publications from FILE (CSV, JSON or NDJSON; columns post_id, tipo_item, imagen_url, imagen_local, media_id). Rows that do
    not fit are told and passed over; a post with the same link or media_id again is known."""
    from esclusa.imports import Report, read_file  # noqa: PLC0415 - the command starts fast
    from esclusa.pipelines.media.intake import COLUMNS, Intake  # noqa: PLC0415
    from esclusa.pipelines.media.records import Publication  # noqa: PLC0415

    async def do(runtime: Runtime) -> Report:
        report = await Intake(runtime.engine.records, session.who).read(read_file(file, COLUMNS))
        if report.created:
            await runtime.operations(session.who).note(
                "add", Publication.kind.table, report.created
            )
        return report

    answer = session.work(do).answer()
    session.show(answer, lambda screen: print_report(screen, answer))
    return FAILED if answer["errors"] else OK


@media.command()
@click.option(
    "--type", "kind", type=click.Choice(TYPES), help="Only those whose last error is of this type."
)
@click.option("--reason", default="", help="Why, for the history and the audit.")
@click.option("--dry-run", is_flag=True, help="Tell how many there are, and do nothing.")
@click.pass_obj
def retry(session: Session, kind: str | None, reason: str, dry_run: bool) -> int:
    """Give publications that ended in an error a new try: back to pending, attempts at 0."""
    from esclusa.pipelines.media.records import Publication  # noqa: PLC0415 - the command starts fast

    matched = 0

    async def choose(pub: Publication) -> To | str:
        from esclusa import To  # noqa: PLC0415 - the command starts fast

        nonlocal matched
        if kind is not None and (pub.last_error or {}).get("type") != kind:
            return f"its last error is not of type {kind}"
        matched += 1
        return To("pending")

    async def do(runtime: Runtime) -> dict[str, Any]:
        operator, where = runtime.operations(session.who), {"status": "error"}
        if dry_run:
            async for pub in runtime.engine.records.each(Publication, where):
                await choose(pub)
            return {
                "verb": "retry",
                "table": Publication.kind.table,
                "matched": matched,
                "moved": 0,
                "dry_run": True,
            }
        acted = await operator.apply(
            "retry", Publication.kind.table, choose, where=where, reason=reason
        )
        return {
            "verb": "retry",
            "table": Publication.kind.table,
            "matched": matched,
            "moved": acted.moved,
            "dry_run": False,
        }

    answer = session.look(do)
    session.show(
        answer, lambda screen: screen.line(_retried(answer, f" of type {kind}" if kind else ""))
    )
    return OK


def _retried(answer: dict[str, Any], of_type: str) -> str:
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
    """Publications with media by state, with the average of their attempts."""
    from esclusa.pipelines.media import views  # noqa: PLC0415 - the command starts fast

    async def ask(runtime: Runtime) -> dict[str, Any]:
        return await views.summary(runtime.engine.records)

    answer = session.look(ask)
    rows = [
        (
            i["media_status"],
            i["total"],
            None if i["avg_intentos"] is None else f"{i['avg_intentos']:.2f}",
        )
        for i in answer["items"]
    ]
    session.show(
        answer,
        lambda screen: screen.table(
            ("state", ">total", ">attempts on average"), rows, empty="no publication has media"
        ),
    )
    return OK
