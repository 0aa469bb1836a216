"""``esclusa replies``: the same operations as over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from esclusa import Runtime
from esclusa.cli import FAILED, OK, PARTIAL, Group, Screen, Session, print_report, run_cycle
from esclusa.exports import FORMATS, Format
from esclusa.imports import read_file
from esclusa.pipelines.replies.export import export_replies
from esclusa.pipelines.replies.operations import (
    FILTERS,
    ReplyOperations,
    count_failed_without_done,
    count_jobs,
    find_failed_without_done,
    job_filter,
    quota_status,
)
from esclusa.pipelines.replies.records import Job
from esclusa.pipelines.replies.reply_rows import GROUPS
from esclusa.pipelines.replies.report import NUMBERS, report

CommandFunction = Callable[..., Any]


def _filter_options(command: CommandFunction) -> CommandFunction:
    for name in reversed(FILTERS):
        flag = f"--{name.replace('_', '-')}"
        noun = name.removesuffix("_id")
        command = click.option(flag, help=f"Only records of this {noun}.")(command)
    return command


def _group_options(command: CommandFunction) -> CommandFunction:
    for name in reversed(GROUPS):
        flag = f"--{name.replace('_', '-')}"
        command = click.option(flag, help=f"Only this {name.removesuffix('_id')}.")(command)
    return command


def _bulk_options(command: CommandFunction) -> CommandFunction:
    command = click.option("--dry-run", is_flag=True, help="Only count, change nothing.")(command)
    return click.option("--limit", type=click.IntRange(min=1), help="The maximum of records.")(
        _filter_options(command)
    )


def _take_filters(options: dict[str, Any]) -> dict[str, str]:
    """Remove the filters from the options and return those that were given."""
    given = {name: options.pop(name) for name in FILTERS if name in options}
    return {name: value for name, value in given.items() if value is not None}


def _show_result(session: Session, verb: str, answer: dict[str, Any]) -> None:
    def draw(screen: Screen) -> None:
        matched = f"{answer['matched']:,}"
        if answer["dry_run"]:
            screen.line(f"{verb}: would change up to {matched} of {matched}")
        else:
            screen.line(f"{verb}: changed {answer['moved']:,} of {matched}")
        if answer["passed"]:
            screen.table(["skipped", "why"], [(p["id"], p["why"]) for p in answer["passed"]])

    session.show(answer, draw)


group = Group("replies", help="Replies of social posts, by Information Tracer.")


@group.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.pass_obj
def import_posts(session: Session, file: Path) -> int:
    """Add the posts of FILE (.csv, .json, .ndjson); known posts stay as they are.

    Exit code 5 if some rows are bad, 1 if all are.
    """

    async def add(runtime: Runtime) -> dict[str, Any]:
        return (await ReplyOperations(runtime, session.who).add(read_file(file))).answer()

    answer = session.work(add)
    session.show(answer, lambda screen: print_report(screen, answer))
    if not answer["errors"]:
        return OK
    return PARTIAL if answer["created"] or answer["known"] else FAILED


@group.command("process-posts")
@click.option("--max-posts", type=click.IntRange(min=1), help="The maximum of searches.")
@click.option(
    "--sort-by",
    type=click.Choice(["time", "engagement"]),
    help="The order of the replies, for posts that have none.",
)
@click.pass_obj
def process_posts(session: Session, max_posts: int | None, sort_by: str | None) -> int:
    """Run phase 1 once: submit the waiting posts."""
    given = {"max_posts": max_posts, "sort_by": sort_by}
    params = {name: value for name, value in given.items() if value is not None}
    return run_cycle(session, "replies.process-posts", params=params)


@group.command("process-jobs")
@click.option("--max-jobs", type=click.IntRange(min=1), help="The maximum of jobs.")
@click.pass_obj
def process_jobs(session: Session, max_jobs: int | None) -> int:
    """Run phase 2 once: check the pending jobs and save their replies."""
    return run_cycle(
        session, "replies.process-jobs", params={"max_jobs": max_jobs} if max_jobs else {}
    )


def _add_operation(name: str, method: str, help: str) -> None:
    @_bulk_options
    def command(session: Session, /, **options: Any) -> int:
        filters = _take_filters(options)

        async def act(runtime: Runtime) -> Any:
            return await getattr(ReplyOperations(runtime, session.who), method)(filters, **options)

        _show_result(session, name, session.work(act))
        return OK

    group.command(name, help=help)(click.pass_obj(command))


_add_operation("retry-empty", "retry_empty", "Check jobs with an empty result again.")
_add_operation(
    "verify-empty", "verify_empty", "Accept the empty results of twitter posts with few replies."
)
_add_operation(
    "recollect",
    "recollect",
    "Search done posts again; their files are kept as older versions. --dry-run counts them.",
)
_add_operation("resubmit", "resubmit", "Allow one more search for exhausted posts.")


@group.command("retry-jobs")
@click.option(
    "--status",
    type=click.Choice(["failed", "quota_exceeded"]),
    multiple=True,
    help="Only jobs in this state. Default: both.",
)
@_bulk_options
@click.pass_obj
def retry_jobs(
    session: Session, /, status: tuple[str, ...], limit: int | None, dry_run: bool, **options: Any
) -> int:
    """Check failed and quota_exceeded jobs again."""
    filters = _take_filters(options)

    async def act(runtime: Runtime) -> dict[str, Any]:
        operations = ReplyOperations(runtime, session.who)
        return await operations.retry_jobs(filters, status, limit=limit, dry_run=dry_run)

    _show_result(session, "retry-jobs", session.work(act))
    return OK


@group.command("failed")
@click.option("--without-done", is_flag=True, help="Only jobs of posts that have no done job.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="The maximum of jobs.",
)
@_filter_options
@click.pass_obj
def failed(session: Session, /, without_done: bool, limit: int, **options: Any) -> int:
    """List failed jobs and count them."""
    filters = _take_filters(options)
    where = job_filter(filters, ["failed"])

    async def read(runtime: Runtime) -> dict[str, Any]:
        if without_done:
            page = await find_failed_without_done(runtime, filters, limit=limit)
            count = await count_failed_without_done(runtime, filters)
        else:
            page = await runtime.records.find(Job, where, limit=limit)
            count = await count_jobs(runtime, where)
        return {
            "count": count,
            "items": [job.kind.as_json(job) for job in page.items],
            "next": page.next,
        }

    answer = session.look(read)

    def draw(screen: Screen) -> None:
        rows = [
            (
                job["job_id"],
                job["platform"],
                job["post_id"],
                job["updated_at"],
                (job["last_error"] or {}).get("message"),
            )
            for job in answer["items"]
        ]
        screen.table(["job", "platform", "post", "failed", "why"], rows, empty="no failed jobs")
        if answer["count"] > len(rows):
            screen.line(f"{len(rows):,} of {answer['count']:,}")

    session.show(answer, draw)
    return OK


@group.command("export")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="parquet",
    show_default=True,
    help="The format of the table.",
)
@click.option(
    "--pseudonymise",
    is_flag=True,
    help="Replace authors and mentions by keyed hashes (REPLIES_PSEUDONYM_KEY).",
)
@click.option("--to", metavar="URL", help="A folder or bucket. Default: the artifact store.")
@_group_options
@click.pass_obj
def export(
    session: Session, /, form: Format, pseudonymise: bool, to: str | None, **options: Any
) -> int:
    """Write the saved replies that no earlier export wrote as one flat table.

    Exit code 5 if some files cannot be read.
    """
    filters = _take_filters(options)

    async def write(runtime: Runtime) -> dict[str, Any]:
        return await export_replies(
            runtime, form, to=to, filters=filters, pseudonymise=pseudonymise
        )

    answer = session.work(write)

    def draw(screen: Screen) -> None:
        screen.line(
            f"{answer['replies']:,} replies of {answer['files']:,} files"
            + (f" written to {answer['url']}" if answer["file"] else ": nothing new")
        )
        for path in answer["unreadable"]:
            screen.line(f"cannot be read: {path}")

    session.show(answer, draw)
    return PARTIAL if answer["unreadable"] else OK


@group.command("report")
@_group_options
@click.pass_obj
def show_report(session: Session, /, **options: Any) -> int:
    """Posts, replies and searches by country, platform and candidate."""
    filters = _take_filters(options)

    async def read(runtime: Runtime) -> dict[str, Any]:
        return await report(runtime, filters)

    answer = session.work(read)  # it may read files

    def draw(screen: Screen) -> None:
        names = (*NUMBERS, "days")
        rows = [[*(row[name] for name in (*GROUPS, *names))] for row in answer["items"]]
        rows.append(["total", "", "", *(answer["total"][name] for name in names)])
        columns = [*GROUPS, *(f">{name.replace('_', ' ')}" for name in names)]
        screen.table(columns, rows)
        screen.line(
            f"{answer['total']['waiting']:,} posts wait: {answer['total']['days']} days of "
            f"{answer['searches_per_day']:,} searches"
        )
        if answer["uncounted_files"]:
            screen.line(f"files whose replies are not counted: {answer['uncounted_files']:,}")

    session.show(answer, draw)
    return OK


@group.command("quota")
@click.pass_obj
def quota(session: Session) -> int:
    """Show today's searches at the provider: used, limit, reset."""
    answer = session.look(quota_status)
    session.show(
        answer,
        lambda screen: screen.line(
            f"{answer['used']:,}/{answer['limit']:,} searches used, {answer['left']:,} left; "
            f"reset at {answer['reset']}"
        ),
    )
    return OK
