"""What the visitor may not decide: the states of ``App.decision``, and who may instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Request

from esclusa.model.kind import Kind
from esclusa.model.query import Where, conditions, matches, one_of
from esclusa.web.console import translate
from esclusa.web.console.context import ConsoleContext


class Refusals:
    """The states of a kind out of which the visitor may move no record, and who may, in words."""

    def __init__(self, console: ConsoleContext, request: Request, kind: Kind) -> None:
        self._kind = kind
        self._retried = console.read_model.retry_targets(kind)
        found = console.read_model.registry.refusals(kind, str(request.state.who))
        self._words = {state: translate.sentence(why) for state, why in found.items()}

    def of(self, state: str) -> str | None:
        """Who may move a record out of the state; None if the visitor may."""
        return self._words.get(self._kind.lifecycle.current(state))

    def of_all(self, where: Where) -> list[str]:
        """Who may move the records that match, state by state; empty if the visitor may any."""
        status = {"status": where["status"]} if "status" in where else {}
        tests = conditions(self._kind, status, searching=True)
        states = [s for s in self._kind.lifecycle.states if matches({"status": s}, tests)]
        words = [self._words.get(state) for state in states]
        return [word for word in words if word] if all(words) else []

    def of_retries(self) -> list[str]:
        """Who may retry records, if the visitor may retry none."""
        return self.of_all({"status": one_of(*self._retried)}) if self._retried else []

    def of_sample(self, rows: Sequence[Mapping[str, Any]], where: Where, matched: int) -> list[str]:
        """Who may move the records of a preview, if the visitor may move none of them.

        rows: the first of those that match, each with the reason why it is ``skipped``, if it is.
        """
        if matched > len(rows) and not self.of_all(where):
            return []
        words = [self.of(row["status"]) if row["skipped"] else None for row in rows]
        return list(dict.fromkeys(word for word in words if word)) if all(words) else []
