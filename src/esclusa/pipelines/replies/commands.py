"""``esclusa replies``: the same verbs as over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from esclusa.cli import FAILED, OK, PARTIAL
from esclusa.cli.output import Screen, print_report
from esclusa.cli.root import Group
from esclusa.cli.session import Session
from esclusa.cli.work import run_cycle
from esclusa.imports import read_file
from esclusa.model.errors import SettingsError
from esclusa.pipelines.replies.desk import Choice, Desk, jobs, quota_now
from esclusa.pipelines.replies.records import Job
from esclusa.pipelines.replies.settings import missing
from esclusa.runtime import Runtime

Verb = Callable[..., Any]


def _chosen(command: Verb) -> Verb:
    for name, help in (
        ("post-id", "Only of this post."), ("candidate-id", "Only of this candidate."), ("country", "Only of this country."),
        ("platform", "Only of this platform."),
    ):  # fmt: skip
        command = click.option(f"--{name}", help=help)(command)
    return command


def _bounded(command: Verb) -> Verb:
    command = click.option("--dry-run", is_flag=True, help="Only count what it would do.")(command)
    return click.option("--limit", type=click.IntRange(min=1), help="At most so many.")(command)


def _choice(said: dict[str, Any]) -> Choice:
    return Choice(
        said.pop("platform"), said.pop("country"), said.pop("candidate_id"), said.pop("post_id")
    )


def _tell(session: Session, verb: str, answer: dict[str, Any]) -> None:
    def draw(screen: Screen) -> None:
        would = "would touch up to" if answer["dry_run"] else "done:"
        screen.line(
            f"{verb}: {would} {answer['matched'] if answer['dry_run'] else answer['moved']:,} of {answer['matched']:,}"
        )
        if answer["passed"]:
            screen.table(["passed over", "why"], [(p["id"], p["why"]) for p in answer["passed"]])

    session.show(answer, draw)


group = Group("replies", help="Replies of social posts, by Information Tracer.")


@group.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.pass_obj
def add(session: Session, file: Path) -> int:
    """Add the posts of FILE (.csv, .json, .ndjson); known ones are left as they are. Exit code 5 if some rows are bad, 1 if all."""

    async def do(runtime: Runtime) -> dict[str, Any]:
        return (await Desk(runtime, session.who).add(read_file(file))).answer()

    answer = session.work(do)
    errors = answer["errors"]

    session.show(answer, lambda screen: print_report(screen, answer))
    return OK if not errors else PARTIAL if answer["created"] or answer["known"] else FAILED


@group.command("process-posts")
@click.option("--max-posts", type=click.IntRange(min=1), help="At most so many searches.")
@click.pass_obj
def process_posts(session: Session, max_posts: int | None) -> int:
    """Submit the posts that wait: phase 1, once, to its end."""
    return run_cycle(
        session, "replies.process-posts", params={"max_posts": max_posts} if max_posts else {}
    )


@group.command("process-jobs")
@click.option("--max-jobs", type=click.IntRange(min=1), help="At most so many jobs.")
@click.pass_obj
def process_jobs(session: Session, max_jobs: int | None) -> int:
    """Check every pending job and save what is there: phase 2, once, to its end."""
    return run_cycle(
        session, "replies.process-jobs", params={"max_jobs": max_jobs} if max_jobs else {}
    )


def _verb(name: str, method: str, help: str) -> None:
    @_chosen
    @_bounded
    def act(session: Session, /, **said: Any) -> int:
        choice = _choice(said)

        async def do(runtime: Runtime) -> dict[str, Any]:
            done: dict[str, Any] = await getattr(Desk(runtime, session.who), method)(choice, **said)
            return done

        _tell(session, name, session.work(do))
        return OK

    group.command(name, help=help)(click.pass_obj(act))


_verb("retry-empty", "retry_empty", "Check jobs with an empty result again.")
_verb(
    "verify-empty",
    "verify_empty",
    "Accept the empty results of twitter posts with hardly any replies.",
)
_verb("resubmit", "resubmit", "Give posts whose searches failed too often a new try.")


@group.command("retry-jobs")
@click.option(
    "--status",
    type=click.Choice(["failed", "quota_exceeded"]),
    multiple=True,
    help="Both, if none is named.",
)
@_chosen
@_bounded
@click.pass_obj
def retry_jobs(
    session: Session, /, status: tuple[str, ...], limit: int | None, dry_run: bool, **said: Any
) -> int:
    """Check failed jobs, and those out of quota, again."""
    choice = _choice(said)

    async def do(runtime: Runtime) -> dict[str, Any]:
        return await Desk(runtime, session.who).retry_jobs(
            choice, status, limit=limit, dry_run=dry_run
        )

    _tell(session, "retry-jobs", session.work(do))
    return OK


@group.command("failed")
@click.option("--without-done", is_flag=True, help="Only of posts that have no done job.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="At most so many.",
)
@_chosen
@click.pass_obj
def failed(session: Session, /, without_done: bool, limit: int, **said: Any) -> int:
    """Failed jobs, and how many there are."""
    where = jobs(_choice(said), ["failed"], without_done=without_done)

    async def do(runtime: Runtime) -> dict[str, Any]:
        page = await runtime.engine.records.find(Job, where, limit=limit)
        count = await Desk(runtime, session.who).count_jobs(where)
        return {
            "count": count,
            "items": [job.kind.as_json(job) for job in page.items],
            "next": page.next,
        }

    answer = session.look(do)

    def draw(screen: Screen) -> None:
        rows = [
            (
                j["job_id"],
                j["platform"],
                j["post_id"],
                j["updated_at"],
                (j["last_error"] or {}).get("message"),
            )
            for j in answer["items"]
        ]
        screen.table(["job", "platform", "post", "failed", "why"], rows, empty="no failed jobs")
        if answer["count"] > len(rows):
            screen.line(f"{len(rows):,} of {answer['count']:,}")

    session.show(answer, draw)
    return OK


@group.command("quota")
@click.pass_obj
def quota(session: Session) -> int:
    """Today's searches at the provider: used, limit, reset."""
    plan = next(plan for plan in session.settings.plans if plan.name == "replies")
    if faults := list(missing(plan.settings)):  # type: ignore[arg-type]  # its own settings
        raise SettingsError("the quota cannot be asked:", faults)
    answer = session.look(quota_now)

    def draw(screen: Screen) -> None:
        screen.line(
            f"{answer['used']:,}/{answer['limit']:,} searches used, {answer['left']:,} left; reset at {answer['reset']}"
        )

    session.show(answer, draw)
    return OK
