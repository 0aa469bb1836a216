"""More commands that look, and the one that changes a limit: what the console shows beyond the house at a glance."""

from __future__ import annotations

from typing import Any

import click

from esclusa.cli.inspect import kind_argument
from esclusa.cli.operate import reason_option
from esclusa.cli.output import Screen, ago, moment, seconds_of
from esclusa.cli.root import Command
from esclusa.cli.session import Session
from esclusa.engine.outlook import Outlook
from esclusa.runtime import Runtime


def _items(session: Session, answer: list[dict[str, Any]], draw: Any) -> None:
    session.show({"items": answer, "next": None}, draw)


@click.command(cls=Command)
@click.option(
    "--minutes",
    "-m",
    type=click.IntRange(1, 1440),
    default=60,
    show_default=True,
    help="So many minutes back.",
)
@click.pass_obj
def rates(session: Session, minutes: int) -> None:
    """What each stage did, its errors and its times."""
    answer = session.look(lambda runtime: Outlook(runtime.engine).rates(minutes))

    def draw(screen: Screen) -> None:
        told, times = ("moved", "retried", "exhausted", "waited", "lost"), ("p50", "p90", "p99")
        rows = [
            (s["stage"], *(s["total"][n] for n in told), *(seconds_of(s[p]) for p in times))
            for s in answer
        ]
        screen.table(
            [
                "STAGE",
                ">MOVED",
                ">RETRIED",
                ">GIVEN UP",
                ">WAITED",
                ">LOST",
                ">P50",
                ">P90",
                ">P99",
            ],
            rows,
            empty="no stages",
        )

    _items(session, answer, draw)


@click.command(cls=Command)
@click.pass_obj
def leases(session: Session) -> None:
    """Records that are held now: by whom, until when."""
    answer, now = session.look_now(lambda runtime: Outlook(runtime.engine).leases())

    def draw(screen: Screen) -> None:
        rows = [
            (
                x["stage"],
                x["id"],
                x["worker"],
                x["attempt"],
                ago(x["until"], now),
                "orphan" if x["orphan"] else "",
            )
            for x in answer
        ]
        screen.table(
            ["STAGE", "RECORD", "WORKER", ">TRY", "UNTIL", ""], rows, empty="nothing is held now"
        )

    _items(session, answer, draw)


@click.command(cls=Command)
@kind_argument
@click.argument("id")
@click.pass_obj
def related(session: Session, table: str, id: str) -> None:
    """The records that a record refers to, and those that refer to it."""
    answer = session.look(lambda runtime: Outlook(runtime.engine).related(table, id))

    def draw(screen: Screen) -> None:
        rows = [
            (r["way"], r["field"], r["table"], i["id"], i["status"], i["title"])
            for r in answer
            for i in r["items"]
        ]
        screen.table(
            ["WAY", "FIELD", "KIND", "ID", "STATUS", "TITLE"],
            rows,
            empty="no references are declared, or none is filled in",
        )

    _items(session, answer, draw)


@click.command(cls=Command)
@click.pass_obj
def archives(session: Session) -> None:
    """The archive of each kind, and its exports."""
    answer = session.look(lambda runtime: Outlook(runtime.engine).archives())

    def draw(screen: Screen) -> None:
        rows = [
            (
                a["table"],
                a["rows"],
                a["not_exported"],
                a["exported_rows"],
                a["exports"],
                a["unverified"],
                a["dropped"],
            )
            for a in answer
        ]
        screen.table(
            [
                "KIND",
                ">ARCHIVED",
                ">NOT EXPORTED",
                ">EXPORTED",
                ">FILES",
                ">UNVERIFIED",
                ">DROPPED",
            ],
            rows,
            empty="no kind keeps an archive",
        )

    _items(session, answer, draw)


@click.command(cls=Command)
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(1, 10_000),
    default=20,
    show_default=True,
    help="At most so many.",
)
@click.option("--after", metavar="CURSOR", help="Go on after the page before: its 'next'.")
@click.pass_obj
def audit(session: Session, limit: int, after: str | None) -> None:
    """What operators did: who, what, on how many, why; the newest first."""
    from esclusa.model.system_records import Audit

    page = session.look(
        lambda runtime: runtime.read_model.records(
            Audit.kind.table, {}, order="-done_at", limit=limit, after=after
        )
    )

    def draw(screen: Screen) -> None:
        rows = [
            (moment(a.done_at), a.who, a.verb, a.subject, a.affected, a.reason)
            for a in page.items
            if isinstance(a, Audit)
        ]
        screen.table(
            ["AT (UTC)", "WHO", "WHAT", "ON", ">AFFECTED", "WHY"],
            rows,
            empty="nobody has acted yet",
        )
        if page.next:
            session.note(f"there are more: --after {page.next}")

    session.show({"items": [r.kind.as_json(r) for r in page.items], "next": page.next}, draw)


@click.command(cls=Command)
@click.argument("name", metavar="[VIEW]", required=False)
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(1, 1000),
    default=50,
    show_default=True,
    help="At most so many.",
)
@click.option("--after", metavar="CURSOR", help="Go on after the page before: its 'next'.")
@click.pass_obj
def views(session: Session, name: str | None, limit: int, after: str | None) -> None:
    """The views that pipelines declare, with the number of records in each; or one page of VIEW."""
    if name is None:
        found = session.look(lambda runtime: Outlook(runtime.engine).views())
        rows = [(v["view"], _number(v["count"], v["exact"]), v["title"]["en"]) for v in found]
        _items(
            session,
            found,
            lambda screen: screen.table(
                ["VIEW", ">RECORDS", "TELLS"], rows, empty="no pipeline declares a view"
            ),
        )
        return
    page = session.look(
        lambda runtime: Outlook(runtime.engine).view(name, limit=limit, after=after)
    )

    def draw(screen: Screen) -> None:
        columns = page["columns"]
        screen.table(
            [c.upper() for c in columns],
            [[item.get(c) for c in columns] for item in page["items"]],
            empty="nothing now",
        )
        if page["next"]:
            session.note(f"there are more: --after {page['next']}")

    session.show(page, draw)


def _number(count: int | None, exact: bool) -> str | None:
    return None if count is None else f"{count:,}" if exact else f"~{count:,}"


@click.command(cls=Command)
@click.argument("text")
@click.pass_obj
def search(session: Session, text: str) -> None:
    """Records of every kind whose id is TEXT, or begins with it."""
    answer = session.look(lambda runtime: Outlook(runtime.engine).search(text.strip()))
    rows = [
        (found["table"], i["id"], i["status"], i["title"])
        for found in answer
        for i in found["items"]
    ]
    _items(
        session,
        answer,
        lambda screen: screen.table(
            ["KIND", "ID", "STATUS", "TITLE"], rows, empty=f"no id begins with {text}"
        ),
    )


@click.command(cls=Command)
@click.argument("budget")
@click.argument("limit", type=click.IntRange(min=0))
@click.option(
    "--per",
    required=True,
    type=click.Choice(["second", "minute", "hour", "day", "month"]),
    help="Of which window.",
)
@reason_option
@click.pass_obj
def limit(session: Session, budget: str, limit: int, per: str, reason: str) -> None:
    """Change the limit of a budget's open window, until it resets."""

    async def act(runtime: Runtime) -> None:
        await runtime.operations(session.who).limit(budget, per, limit, reason)

    session.look(act)
    session.show(
        {"budget": budget, "per": per, "limit": limit},
        lambda s: s.line(f"{budget}: {limit:,} per {per} until the window resets"),
    )
