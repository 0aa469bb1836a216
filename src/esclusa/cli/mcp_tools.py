"""What ``esclusa mcp`` offers: tools and resources on the read model and the operations.

Secrets are masked, as for a caller of the API with the role read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from esclusa.cli.chosen_records import chosen_records
from esclusa.cli.mcp_protocol import INVALID_PARAMS, InvalidCall, Resource, Tool
from esclusa.model.query import check_states, parse_filter
from esclusa.model.system_records import Alert, DeadLetter
from esclusa.observability import redact

if TYPE_CHECKING:
    from esclusa.engine.audited import Acted
    from esclusa.model.query import Page
    from esclusa.model.record import Record
    from esclusa.runtime import Runtime

# The most items of a page.
MOST = 200

_TEXT: dict[str, Any] = {"type": "string"}
_KIND = _TEXT | {"description": "The table of the kind, as the tool kinds lists it"}
_ID = _TEXT | {"description": "The id of the record"}
_WHERE: dict[str, Any] = {
    "type": "array",
    "items": _TEXT,
    "description": "Filters that must all hold: field=value, field=a,b, field>=value, field=null, "
    "field!=null. The state is the field status.",
}
_IDS: dict[str, Any] = {
    "type": "array",
    "items": _TEXT,
    "description": "The ids; or use where, not both",
}
_LIMIT: dict[str, Any] = {
    "type": "integer",
    "minimum": 1,
    "maximum": MOST,
    "description": f"At most this many (50, up to {MOST})",
}
_AFTER = _TEXT | {"description": "next of the previous page"}
_REASON = _TEXT | {"description": "Why. Stored in the history and the audit"}
_SET: dict[str, Any] = {"type": "object", "description": "Fields to set at the same time"}
_TO = _TEXT | {"description": "The state to move them to, by a declared move"}


class McpTools:
    """The tools of one opened system. With ``operate`` some of them change records.

    ``who``: the name in the history and the audit.
    """

    def __init__(self, runtime: Runtime, *, who: str, operate: bool) -> None:
        self._operations = runtime.operations(who)
        self._read = runtime.read_model
        self._operate = operate
        self.instructions = (
            "Esclusa moves records of database tables from state to state. Begin with status or "
            "kinds. To learn why a record does not move, use why; it also says what to do. "
            + (
                "Operations change records: use their dry run first, and give a reason."
                if operate
                else "Nothing can be changed here; dry runs say what an operation would do."
            )
        )
        self.tools: Sequence[Tool] = (*self._readers(), *self._acting())
        self.resources: Sequence[Resource] = tuple(self._lifecycles())

    def _readers(self) -> list[Tool]:
        page = {"limit": _LIMIT, "after": _AFTER}
        return [
            Tool("status", "Status", "The whole system: counts per state, due records, cycles, "
                 "budgets, workers.", self._status, {}),
            Tool("kinds", "Kinds", "Every kind of record with its lifecycle and its counts per "
                 "state.", self._kinds, {}),
            Tool("records", "Records", "Records of a kind, filtered.", self._records,
                 {"kind": _KIND, "where": _WHERE, "order": _TEXT | {
                     "description": "A field; -field for descending order"}, **page}, ["kind"]),
            Tool("record", "Record", "One record with its history, what it refers to, and why it "
                 "is not moving.", self._record, {"kind": _KIND, "id": _ID}, ["kind", "id"]),
            Tool("why", "Why", "Why a record is not moving, and when it can move next.",
                 self._why, {"kind": _KIND, "id": _ID}, ["kind", "id"]),
            Tool("history", "History", "The moves of a record: when, from, to, who, reason, "
                 "error, changed fields.", self._history,
                 {"kind": _KIND, "id": _ID, "limit": _LIMIT}, ["kind", "id"]),
            Tool("search", "Search", "Records of every kind whose id is or begins with a text.",
                 self._search, {"text": _TEXT}, ["text"]),
            Tool("dead_letters", "Dead letters", "Open dead letters: grouped by error, or the "
                 "single ones that match filters.", self._dead_letters,
                 {"where": _WHERE, "grouped": {"type": "boolean"}, **page}),
            Tool("alerts", "Alerts", "Alerts, newest first; open ones have the status open.",
                 self._alerts, {"where": _WHERE, **page}),
            Tool("runs", "Runs", "Runs of cycles, newest first.", self._runs,
                 {"cycle": _TEXT, **page}),
        ]  # fmt: skip

    def _acting(self) -> list[Tool]:
        """The operations. Without ``operate`` every call is a dry run."""
        also: dict[str, Any] = {"reason": _REASON}
        prefix = "Say what this would do: "
        if self._operate:
            also["dry_run"] = {"type": "boolean", "description": "Only count what matches"}
            prefix = ""
        chosen = {"kind": _KIND, "ids": _IDS, "where": _WHERE}
        made = partial(Tool, writes=self._operate)
        return [
            made("retry", "Retry", f"{prefix}Retry exhausted records.", self._retry,
                 chosen | also, ["kind", *self._needed]),
            made("move", "Move", f"{prefix}Move records to a state by a declared move. If one "
                 "record cannot make it, none is moved.", self._move,
                 chosen | {"to": _TO, "set": _SET} | also, ["kind", "to", *self._needed]),
            made("redrive", "Redrive", f"{prefix}Retry the records of dead letters.",
                 self._redrive, {"ids": _IDS, "where": _WHERE, "set": _SET} | also,
                 [*self._needed]),
        ]  # fmt: skip

    @property
    def _needed(self) -> tuple[str, ...]:
        return ("reason",) if self._operate else ()

    # reading

    async def _status(self) -> dict[str, Any]:
        return redact.fields(await self._read.status())

    async def _kinds(self) -> dict[str, Any]:
        return {"items": await self._read.kinds()}

    async def _records(
        self,
        kind: str,
        where: Sequence[str] = (),
        order: str = "",
        limit: int = 50,
        after: str | None = None,
    ) -> dict[str, Any]:
        declared = self._read.registry.kind(kind)
        filter = parse_filter(declared, where)
        page = await self._read.records(kind, filter, order=order or (), limit=limit, after=after)
        if not page.items and "status" in filter:
            check_states(declared, filter, await self._read.states(kind))
        return _page(page)

    async def _record(self, kind: str, id: str) -> dict[str, Any]:
        return {
            "record": _record(await self._read.record(kind, id)),
            "why": (await self._why(kind, id)),
            "history": (await self._history(kind, id))["items"],
            "related": await self._read.related(kind, id),
        }

    async def _why(self, kind: str, id: str) -> dict[str, Any]:
        return redact.fields((await self._read.why(kind, id)).answer())

    async def _history(self, kind: str, id: str, limit: int = 50) -> dict[str, Any]:
        steps = await self._read.history(kind, id, limit)
        return {"items": [redact.fields(asdict(step)) for step in steps]}

    async def _search(self, text: str) -> dict[str, Any]:
        return {"items": await self._read.search(text.strip())}

    async def _dead_letters(
        self,
        where: Sequence[str] = (),
        grouped: bool = False,
        limit: int = 50,
        after: str | None = None,
    ) -> dict[str, Any]:
        filter = parse_filter(DeadLetter.kind, where or ["status=open"])
        check_states(DeadLetter.kind, filter)
        if grouped:
            groups, whole = await self._read.dead_letter_groups(filter)
            return {"items": [redact.fields(group) for group in groups], "exact": whole}
        return _page(await self._read.dead_letters(filter, limit=limit, after=after))

    async def _alerts(
        self, where: Sequence[str] = (), limit: int = 50, after: str | None = None
    ) -> dict[str, Any]:
        filter = parse_filter(Alert.kind, where)
        check_states(Alert.kind, filter)
        return _page(await self._read.alerts(filter, limit=limit, after=after))

    async def _runs(
        self, cycle: str | None = None, limit: int = 50, after: str | None = None
    ) -> dict[str, Any]:
        where = {} if cycle is None else {"cycle": self._read.registry.cycle(cycle).name}
        return _page(await self._read.runs(where, limit=limit, after=after))

    # operations

    async def _retry(
        self,
        kind: str,
        ids: Sequence[str] = (),
        where: Sequence[str] = (),
        reason: str = "",
        dry_run: bool = False,
    ) -> dict[str, Any]:
        chosen = chosen_records(self._read.registry.kind(kind), tuple(ids), tuple(where))
        call = partial(self._operations.retry, kind, **chosen.options())
        return await self._act(call, reason, dry_run)

    async def _move(
        self,
        kind: str,
        to: str,
        ids: Sequence[str] = (),
        where: Sequence[str] = (),
        set: dict[str, Any] | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> dict[str, Any]:
        declared = self._read.registry.kind(kind)
        chosen = chosen_records(declared, tuple(ids), tuple(where))
        fields = declared.check_fields(set or {})
        call = partial(self._operations.move, kind, to, fields=fields, **chosen.options())
        return await self._act(call, reason, dry_run)

    async def _redrive(
        self,
        ids: Sequence[str] = (),
        where: Sequence[str] = (),
        set: dict[str, Any] | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> dict[str, Any]:
        chosen = chosen_records(DeadLetter.kind, tuple(ids), tuple(where))
        call = partial(self._operations.redrive, fields=set or {}, **chosen.options())
        return await self._act(call, reason, dry_run)

    async def _act(
        self, call: Callable[..., Awaitable[Acted]], reason: str, dry_run: bool
    ) -> dict[str, Any]:
        if self._operate and not reason.strip():
            raise InvalidCall(INVALID_PARAMS, "give a reason: it is stored in the audit")
        return (await call(reason=reason, dry_run=dry_run or not self._operate)).answer()

    # resources

    def _lifecycles(self) -> list[Resource]:
        """The lifecycle of each kind, as a Mermaid diagram."""
        found = []
        for kind in self._read.declared():
            drawing = kind.lifecycle.mermaid()
            found.append(
                Resource(
                    f"esclusa://kinds/{kind.table}/lifecycle",
                    f"Lifecycle of {kind.table}",
                    "The declared states and moves, as a Mermaid state diagram.",
                    "text/vnd.mermaid",
                    partial(_text, drawing),
                )
            )
        return found


async def _text(text: str) -> str:
    return text


def _record(record: Record) -> dict[str, Any]:
    return redact.fields(record.kind.as_json(record))


def _page(page: Page[Record]) -> dict[str, Any]:
    return {"items": [_record(record) for record in page.items], "next": page.next}
