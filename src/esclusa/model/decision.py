"""Decisions: states that only certain people may move a record out of."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeAlias

from pydantic import BaseModel

from esclusa.model.from_settings import resolve
from esclusa.model.kind import Kind
from esclusa.model.texts import Text, text
from esclusa.model.value import value

# Names of callers, or a function of the settings that answers them. None: any operator.
Deciders: TypeAlias = Collection[str] | None
# Where the part behind the colon is the name of a token or of a user who has signed in.
_SIGNED_IN = ("api", "console", "django")


@value
class Decision:
    """Who may move the records of a kind out of these states, as names in history and audit."""

    kind: Kind
    states: frozenset[str]
    by: Deciders | Callable[[Any], Deciders]

    def faults(self) -> list[str]:
        """What is wrong with it."""
        unknown = sorted(self.states - set(self.kind.lifecycle.states))
        names = ", ".join(self.kind.lifecycle.states)
        return [
            f"decision: {name} is not a state of {self.kind.table} ({names})" for name in unknown
        ]

    def bound(self, settings: BaseModel, pipeline: str) -> Decision:
        """The decision with the names that the settings have."""
        by = resolve(self.by, settings, f"pipeline {pipeline}", "decision: by")
        return Decision(self.kind, self.states, None if by is None else frozenset(by))

    def refusal(self, state: str) -> Text:
        """Why others may not move a record out of the state: who may."""
        assert not callable(self.by)
        names = ", ".join(sorted(self.by or ()))
        code = "decided_by_others" if names else "decided_by_nobody"
        return text(code, names=names, state=state)

    def allows(self, who: str) -> bool:
        """Whether this caller may decide. ``ana`` is api:ana, console:ana and django:ana."""
        assert not callable(self.by)
        where, _, name = who.partition(":")
        return self.by is None or who in self.by or (where in _SIGNED_IN and name in self.by)
