"""What the states of a kind mean for the stages that run: their roles, and ways out of the last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from esclusa.model.kind import Kind
from esclusa.model.stage import Stage

Role = Literal["waiting", "working", "finished", "failed", "resting"]


def roles(kind: Kind, stages: Iterable[Stage]) -> dict[str, Role]:
    """The role of each state of the kind, given the stages that run.

    waiting: a stage takes records there. working: a stage holds them there. failed: a stage gives
    them up there, or the lifecycle declares it. finished: terminal, or declared. resting: the rest.
    """
    life, own = kind.lifecycle, [stage for stage in stages if stage.kind == kind]
    rising: tuple[tuple[Role, Iterable[str | None]], ...] = (
        ("resting", life.states),
        ("finished", life.finished | life.terminal),
        ("failed", life.failed),
        ("working", [stage.hold for stage in own]),
        ("waiting", [state for stage in own for state in stage.take]),
        ("failed", [stage.exhausted for stage in own]),
    )
    return {state: role for role, states in rising for state in states if state is not None}


# For each exhausted state: the stages that exhaust records there, and where each takes them again.
Ways: TypeAlias = Mapping[str, Sequence[tuple[Stage, str]]]


def ways_back(kind: Kind, stages: Sequence[Stage]) -> Ways:
    """The ways out of each exhausted state of the kind."""
    found: dict[str, list[tuple[Stage, str]]] = {}
    for stage in stages:
        if stage.kind == kind and stage.exhausted is not None:
            back = [
                t
                for t in (stage.retry_to, *stage.take)
                if kind.lifecycle.allows(stage.exhausted, t)
            ]
            if back:
                found.setdefault(stage.exhausted, []).append((stage, back[0]))
    return found
