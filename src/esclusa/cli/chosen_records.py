"""The records that a command acts on, and how it acts: count them, ask, apply, print."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from esclusa.cli.output import Screen, text_of
from esclusa.cli.root import filter_hint
from esclusa.cli.session import Session
from esclusa.model.errors import BadQuery
from esclusa.model.kind import Kind
from esclusa.model.query import Where, check_states, parse_filter
from esclusa.model.value import value

if TYPE_CHECKING:
    from esclusa.engine.audited import Acted
    from esclusa.engine.operations import Operations


@value
class Chosen:
    """The records that a command acts on: by id, or by a filter; neither: the command knows."""

    kind: Kind
    ids: tuple[str, ...] | None = None
    where: Where | None = None

    def options(self) -> dict[str, Any]:
        """The arguments of the operation."""
        given = {"ids": self.ids, "where": self.where}
        return {name: value for name, value in given.items() if value is not None}

    def explain_no_match(self) -> None:
        """Refuse what can match nothing: an undeclared state, a filter in the place of an id.

        Raises BadQuery and UsageError.
        """
        if not self.kind.attached:  # in which other programs may write states of their own
            check_states(self.kind, self.where or {})
        for id in self.ids or ():
            if hint := filter_hint(id, self.kind):
                raise click.UsageError(hint)


def chosen_records(kind: Kind, ids: tuple[str, ...], where: tuple[str, ...]) -> Chosen:
    """The records by id or by filters. Raises BadQuery if both are given, or neither."""
    if bool(ids) == bool(where):
        raise BadQuery(
            f"name the records of {kind.table} by id or by a filter "
            f"(--where status={kind.lifecycle.states[-1]}), not both"
        )
    return Chosen(kind, ids) if ids else Chosen(kind, None, parse_filter(kind, where))


def fields_to_set(given: tuple[str, ...], *, flag: str = "--set") -> dict[str, Any]:
    """The values of ``--set``. The kind converts them to its own types."""
    fields: dict[str, Any] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            raise BadQuery(f"{flag} {each!r}: write FIELD=VALUE, or FIELD=null to empty it")
        fields[name.strip()] = None if value == "null" else value
    return fields


def apply_to_chosen(
    session: Session,
    chosen: Chosen,
    verb: Callable[[Operations], Callable[..., Awaitable[Acted]]],
    question: str,
    reason: str,
    dry_run: bool,
    yes: bool,
    thing: str = "record",
) -> int:
    """Count the records, ask, apply the operation, print the result; return the exit code."""

    def act(**how: Any) -> Acted:
        return session.look(
            lambda runtime: verb(runtime.operations(session.who))(
                reason=reason, **chosen.options(), **how
            )
        )

    would = act(dry_run=True)
    number = f"{'' if would.exact else 'more than '}{would.matched:,}"
    many = f"{number} {thing}{'' if would.matched == 1 else 's'}"
    if would.matched == 0:
        chosen.explain_no_match()
    if dry_run or would.matched == 0:
        session.show(
            would.answer() | {"dry_run": dry_run},
            lambda screen: screen.line(f"{many} match{'es' if would.matched == 1 else ''}"),
        )
        return 0 if dry_run else 1
    session.confirm(question.format(many), yes=yes)
    done = act(seen=None if yes or not would.exact else would.matched, dry_run=False)
    if done.dry_run:
        raise BadQuery(
            f"{done.matched:,} match now, {would.matched:,} matched when you were asked;"
            " nothing was changed. Run the command again."
        )

    def draw(screen: Screen) -> None:
        screen.line(f"{done.moved:,} of {done.matched:,} done")
        for passed in done.passed[:20]:
            screen.line(f"  skipped {text_of(passed['id'])}: {text_of(passed['why'])}")
        if len(done.passed) > 20:
            screen.line("  … and more")

    session.show(done.answer(), draw)
    return 0 if done.moved else 1
