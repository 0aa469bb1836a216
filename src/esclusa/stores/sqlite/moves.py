"""Claim, renew, settle: each is called inside one immediate transaction, which no other writer can disturb."""

# ruff: noqa: S608 - statements are composed of declared names, quoted; values are bound

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, assert_never

import apsw

from esclusa.model.effects import Add, Create, Effect, Exists, Move, Wake
from esclusa.model.errors import UndeclaredMove
from esclusa.model.record import Kind, Record, Ref
from esclusa.model.settlement import (
    ClaimRequest,
    Leased,
    Lost,
    Rejected,
    Renewal,
    Settled,
    Settlement,
    Verdict,
)
from esclusa.model.texts import text
from esclusa.stores.sqlite import records, statements
from esclusa.stores.sqlite.codec import encode_field, encode_json, encode_time
from esclusa.stores.sqlite.statements import (
    Cards,
    chunks,
    many,
    marks,
    meant,
    place_of,
    q,
    rows,
    shown,
    table_of,
)

_HISTORY = "INSERT INTO esclusa_history (table_name, record_id, from_state, to_state, at, who, run, attempt, reason, error)"


@dataclass(slots=True)
class Desk:
    """What a call works with: the connection in its transaction, the moment, what is known of the kinds."""

    connection: apsw.Connection
    cards: Cards
    now: datetime
    new_id: Any
    worked: Mapping[str, frozenset[str]]
    """The states of each table that some stage takes or holds."""
    indexes: frozenset[str] = frozenset()
    woken: set[str] = field(default_factory=set)
    """The tables of which something became due."""
    stamp: str = field(init=False)
    """The moment as it is stored."""

    def __post_init__(self) -> None:
        self.stamp = encode_time(self.now)

    def finished(self, kind: Kind, state: str) -> str | None:
        return None if state in self.worked.get(kind.table, ()) else self.stamp


@dataclass(slots=True)
class Standing:
    """A row as it stands in the transaction."""

    place: Any
    id: str
    status: str
    fence: int
    attempts: int
    holder: str | None
    written: bool = False


def stand(desk: Desk, kind: Kind, ids: Sequence[str]) -> dict[str, Standing]:
    found = rows(desk.connection, desk.cards[kind].standing, (many(ids),)) if ids else []
    return {row[1]: Standing(*row) for row in found}


def remove(desk: Desk, refs: Sequence[Ref]) -> list[bool]:
    """Delete records, with their history; whether each was there."""
    there = _standing(desk, refs)
    for kind in {ref.kind.table: ref.kind for ref in refs}.values():
        if found := there[kind.table]:
            records.erase(
                desk.connection, kind, [(standing.place, id) for id, standing in found.items()]
            )
    return [ref.id in there[ref.kind.table] for ref in refs]


def write_history(connection: apsw.Connection, steps: Sequence[Sequence[Any]]) -> None:
    for count, values in chunks(steps):
        connection.execute(f"{_HISTORY} VALUES {marks(10, count)}", values)


# claim and renew


def claim(desk: Desk, ask: ClaimRequest) -> list[Leased]:
    kind, now = ask.kind, desk.stamp
    taken = rows(desk.connection, *statements.claimable(ask, now, desk.indexes))
    if not taken:
        return []
    until = desk.now + timedelta(seconds=ask.lease)
    due, decoder = encode_time(until), desk.cards[kind].decoder
    places = [row.pop() for row in taken]
    _hold(desk, ask, places, due)
    at = decoder.position
    status, attempts, fence, holder = at["status"], at["attempts"], at["fence"], at["leased_by"]
    known: dict[str, Any] = {"due_at": until, "updated_at": desk.now, "leased_by": ask.worker}
    for name, value in (("leased_at", desk.now), ("finished_at", None)):
        if name == "leased_at" or ask.hold is not None:
            known |= {f.name: value for f in kind.fields if f.column == kind.extras.get(name)}
    stale = [at[name] for name in known]
    most = _most(ask)
    leases: list[Leased] = []
    steps: dict[tuple[str, str, str | None], list[Any]] = {}
    for found, row in zip(places, taken, strict=True):
        before, old = row[status], row[holder]
        after = row[status] = ask.hold or before
        over = row[attempts] >= most
        row[attempts] += not over
        row[fence] += 1
        for place in stale:
            row[place] = None
        if after != before or old is not None:
            reason = None if old is None else text("lease_expired", worker=old).dump()
            steps.setdefault((before, after, reason), []).append(found)
        record, fault = decoder.checked_record(row, known)
        leases.append(
            Leased(record, ask.take[0] if before == ask.hold else before, until, fault, over)
        )
    if kind.history:
        for (before, after, reason), moved in steps.items():
            desk.connection.execute(
                f"{_HISTORY} SELECT ?, {shown(kind, 'id')}, ?, ?, ?, ?, ?, {meant(kind, 'attempts')}, ?, NULL FROM {table_of(kind)}"
                f" WHERE {place_of(kind)} IN (SELECT value FROM carray(?))",
                (
                    kind.table,
                    before,
                    after,
                    now,
                    ask.worker,
                    ask.run,
                    reason,
                    statements.places(moved),
                ),
            )
    return leases


def _most(ask: ClaimRequest) -> int:
    """How many attempts are counted."""
    return 2**62 if ask.tries is None else ask.tries


def _hold(desk: Desk, ask: ClaimRequest, places: list[Any], due: str) -> None:
    kind, track = ask.kind, ask.kind.track
    tried = meant(kind, "attempts")
    sets = [
        f"{q(track['fence'])} = {meant(kind, 'fence')} + 1",
        f"{q(track['attempts'])} = {tried} + ({tried} < ?)",
    ]
    sets += [f"{q(track[n])} = ?" for n in ("leased_by", "due_at", "updated_at")]
    values: list[Any] = [_most(ask), ask.worker, due, desk.stamp]
    if ask.hold is not None:
        sets.append(f"{q(track['status'])} = ?")
        values.append(ask.hold)
        if "finished_at" in kind.extras:
            sets.append(f"{q(kind.extras['finished_at'])} = NULL")
    if "leased_at" in kind.extras:
        sets.append(f"{q(kind.extras['leased_at'])} = ?")
        values.append(desk.stamp)
    statement = f"UPDATE {table_of(kind)} SET {', '.join(sets)} WHERE {place_of(kind)} IN (SELECT value FROM carray(?))"
    desk.connection.execute(statement, [*values, statements.places(places)])


def renew(desk: Desk, renewals: Sequence[Renewal]) -> set[Ref]:
    held: set[Ref] = set()
    standing = _standing(desk, [r.ref for r in renewals])
    writes = _Writes(desk)
    for renewal in renewals:
        row = standing[renewal.ref.kind.table].get(renewal.ref.id)
        if row is None or row.holder is None or row.fence != renewal.fence:
            continue
        held.add(renewal.ref)
        values = [row.place, encode_time(desk.now + timedelta(seconds=renewal.seconds))]
        if renewal.fields:
            writes.add(
                renewal.ref.kind, [*values, desk.stamp], ("due_at", "updated_at"), renewal.fields
            )
        else:
            writes.add(renewal.ref.kind, values, ("due_at",), {})
    writes.flush()
    return held


def _standing(desk: Desk, refs: Sequence[Ref]) -> dict[str, dict[str, Standing]]:
    kinds = {ref.kind.table: ref.kind for ref in refs}
    return {
        table: stand(desk, kind, [ref.id for ref in refs if ref.kind.table == table])
        for table, kind in kinds.items()
    }


class _Writes:
    """Updates of single rows, gathered by the set of columns they write: one statement serves hundreds."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._groups: dict[
            tuple[str, tuple[str, ...], tuple[str, ...]], tuple[Kind, list[list[Any]]]
        ] = {}

    def add(
        self, kind: Kind, row: list[Any], tracking: tuple[str, ...], fields: Mapping[str, Any]
    ) -> None:
        """``row``: the place and the stored values of ``tracking``, names of tracking values and extras; ``fields``:
        Python values of business fields."""
        key = (kind.table, tracking, tuple(fields))
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = (kind, [])
        if fields:
            row += [encode_field(kind, name, value) for name, value in fields.items()]
        group[1].append(row)

    def flush(self) -> None:
        for (_, tracking, fields), (kind, found) in self._groups.items():
            columns = {kind.track[name]: f"v{i}" for i, name in enumerate(tracking)}
            for i, name in enumerate(
                fields, len(tracking)
            ):  # what the engine writes for readers is not overwritten
                columns.setdefault(kind.columns[name], f"v{i}")
            width = len(tracking) + len(fields)
            names = ", ".join(f"v{i}" for i in range(width))
            sets = ", ".join(
                f"{q(column)} = esclusa_new.{value}" for column, value in columns.items()
            )
            place = place_of(kind)
            for count, values in chunks(found):
                self._desk.connection.execute(
                    f"WITH esclusa_new(place, {names}) AS (VALUES {marks(width + 1, count)})"
                    f" UPDATE {table_of(kind)} SET {sets} FROM esclusa_new WHERE {table_of(kind)}.{place} = esclusa_new.place",
                    values,
                )
        self._groups.clear()


# settle


def settle(desk: Desk, settlements: Sequence[Settlement]) -> list[Verdict]:
    """Own moves in bulk, then the effects of each in turn. A rejection undoes all and goes again without the rejected."""
    rejected: dict[int, str] = {}
    while True:
        desk.connection.execute("SAVEPOINT settle")
        desk.woken.clear()
        verdicts, refused = _attempt(desk, settlements, rejected)
        if not refused:
            desk.connection.execute("RELEASE settle")
            return verdicts
        desk.connection.execute("ROLLBACK TO settle; RELEASE settle")
        # one that met the own move of another refused one may go through without it
        gone = {settlements[i].ref for i in refused}
        firm = {
            i: why
            for i, why in refused.items()
            if not any(
                isinstance(e, Move) and Ref(e.kind, e.id) in gone for e in settlements[i].effects
            )
        }
        rejected |= firm or dict(list(refused.items())[:1])


def _attempt(
    desk: Desk, settlements: Sequence[Settlement], rejected: Mapping[int, str]
) -> tuple[list[Verdict], dict[int, str]]:
    standing = _standing(desk, [s.ref for s in settlements])
    writes, steps = _Writes(desk), list[Sequence[Any]]()
    verdicts: list[Verdict] = []
    acting: list[tuple[int, Settlement]] = []
    for i, s in enumerate(settlements):
        ref = s.ref
        kind = ref.kind
        row = standing[kind.table].get(ref.id)
        if row is None or not (
            row.status in s.frm
            if s.fence is None
            else row.fence == s.fence and row.holder is not None
        ):
            verdicts.append(Lost(ref))
            continue
        if i in rejected:
            verdicts.append(Rejected(ref, rejected[i]))
            continue
        if row.written:  # an operator's second move of the same record: after the first
            writes.flush()
        row.written = True
        if kind.history:
            error = None if s.error is None else encode_json(s.error)
            steps.append(
                (
                    kind.table,
                    row.id,
                    row.status,
                    s.to,
                    desk.stamp,
                    s.who,
                    s.run,
                    s.attempt,
                    s.reason,
                    error,
                )
            )
        _move(desk, writes, s, kind, row)
        verdicts.append(Settled(ref))
        if s.effects:
            acting.append((i, s))
    writes.flush()
    write_history(desk.connection, steps)
    return verdicts, _act(desk, acting)


_MOVED = ("status", "attempts", "due_at", "fence", "leased_by", "updated_at")


def _move(desk: Desk, writes: _Writes, s: Settlement, kind: Kind, row: Standing) -> None:
    if s.until is None and s.delay <= 0:
        due, soon = desk.stamp, True
    else:
        moment = s.until or desk.now + timedelta(seconds=s.delay)
        due, soon = encode_time(moment), moment <= desk.now
    if soon:
        desk.woken.add(kind.table)
    before = row.status
    row.status, row.holder = s.to, None
    if s.fence is None:
        row.fence += 1
    if s.attempts is not None:
        row.attempts = s.attempts
    names: tuple[str, ...] = _MOVED
    values = [row.place, s.to, row.attempts, due, row.fence, None, desk.stamp]
    if s.error is not None or s.clear_error:
        error = s.error or {}
        for name in desk.cards[kind].errors:
            names = (*names, name)
            values.append(
                error.get(_ERROR[name])
                if name in _ERROR
                else encode_json(s.error)
                if s.error is not None
                else None
            )
    if kind.extras:
        ended = _ended(desk, kind, before, s.to)
        names, values = (*names, *ended), [*values, *ended.values()]
    writes.add(kind, values, names, s.fields)


_ERROR = {"error_type": "type", "error_message": "message"}


def _ended(desk: Desk, kind: Kind, before: str, to: str) -> dict[str, Any]:
    """What the end of a lease and a move write for readers of the table."""
    ended: dict[str, Any] = {"leased_at": None} if "leased_at" in kind.extras else {}
    if "finished_at" in kind.extras and before != to:
        ended["finished_at"] = desk.finished(kind, to)
    return ended


# effects


class _Refused(Exception):
    """An effect cannot be applied as declared."""


def _act(desk: Desk, acting: Sequence[tuple[int, Settlement]]) -> dict[int, str]:
    """Apply the effects in order; return which settlements must be rejected, and why."""
    refused: dict[int, str] = {}
    drafts: list[Record] = []  # creations wait for company until something could see them
    for i, settlement in acting:
        if all(isinstance(effect, Create) for effect in settlement.effects):
            drafts += [effect.record for effect in settlement.effects if isinstance(effect, Create)]
            continue
        _create(desk, drafts)
        desk.connection.execute("SAVEPOINT effects")
        try:
            for effect in settlement.effects:
                _apply(desk, settlement, effect)
        except _Refused as error:
            refused[i] = str(error)
            desk.connection.execute("ROLLBACK TO effects")
        desk.connection.execute("RELEASE effects")
    _create(desk, drafts)
    return refused


def _create(desk: Desk, drafts: list[Record]) -> None:
    if drafts:
        records.insert(desk.connection, desk.cards, desk.now, desk.new_id, drafts)
        desk.woken.update(draft.kind.table for draft in drafts)
        drafts.clear()


def _apply(desk: Desk, settlement: Settlement, effect: Effect) -> None:
    match effect:
        case Create():
            _create(desk, [effect.record])
        case Move():
            _move_other(desk, settlement, effect)
        case Wake():
            _wake(desk, effect)
        case Add():
            _add(desk, effect)
        case _:
            assert_never(effect)


def _movable(desk: Desk, move: Move) -> Standing | None:
    """The row to move, None where nothing is to be done."""
    row = stand(desk, move.kind, [move.id]).get(move.id)
    if move.frm and (row is None or row.status not in move.frm):
        return None
    if move.unless is not None and _exists(desk, move.unless):
        return None
    if row is None:
        raise _Refused(f"effect Move: there is no {move.kind.table} {move.id}")
    if not move.frm:
        try:
            move.kind.lifecycle.check(
                row.status, move.to, f"effect Move on {move.kind.table} {move.id}"
            )
        except UndeclaredMove as error:
            raise _Refused(str(error)) from None
    return row


def _move_other(desk: Desk, settlement: Settlement, move: Move) -> None:
    row = _movable(desk, move)
    if row is None:
        return
    kind, writes = move.kind, _Writes(desk)
    ended = _ended(desk, kind, row.status, move.to)
    values = [row.place, move.to, 0, desk.stamp, row.fence + 1, None, desk.stamp, *ended.values()]
    writes.add(kind, values, (*_MOVED, *ended), move.fields)
    writes.flush()
    if kind.history:
        step = (
            kind.table,
            row.id,
            row.status,
            move.to,
            desk.stamp,
            settlement.who,
            settlement.run,
            None,
            move.reason,
            None,
        )
        write_history(desk.connection, [step])
    desk.woken.add(kind.table)


def _exists(desk: Desk, guard: Exists) -> bool:
    values: list[Any] = []
    tests = statements.all_of(guard.kind, guard.where, values) or ["1"]
    found = desk.connection.execute(
        f"SELECT EXISTS (SELECT 1 FROM {table_of(guard.kind)} WHERE {' AND '.join(tests)})", values
    )
    return bool(next(iter(found))[0])


def _wake(desk: Desk, wake: Wake) -> None:
    kind = wake.kind
    due, updated = q(kind.track["due_at"]), q(kind.track["updated_at"])
    desk.connection.execute(
        f"UPDATE {table_of(kind)} SET {due} = ?, {updated} = ? WHERE {q(kind.id_column)} = ?"
        f" AND {q(kind.track['leased_by'])} IS NULL AND {statements.since(kind, 'due_at')} > ?",
        (desk.stamp, desk.stamp, wake.id, desk.stamp),
    )
    desk.woken.add(kind.table)


def _add(desk: Desk, add: Add) -> None:
    kind = add.kind
    columns = [q(kind.columns[name]) for name in add.amounts]
    sets = [*(f"{c} = COALESCE({c}, 0) + ?" for c in columns), f"{q(kind.track['updated_at'])} = ?"]
    past = " OR ".join(f"{c} NOT BETWEEN {-(2**63)} AND {2**63 - 1}" for c in columns) or "0"
    found = desk.connection.execute(
        f"UPDATE {table_of(kind)} SET {', '.join(sets)} WHERE {q(kind.id_column)} = ? RETURNING {past}",
        [*add.amounts.values(), desk.stamp, add.id],
    ).fetchall()
    if not found:
        raise _Refused(f"effect Add: there is no {kind.table} {add.id}")
    if found[0][0]:  # SQLite goes on with an inexact number there
        raise _Refused(f"effect Add: {kind.table} {add.id} cannot hold so large a number")
