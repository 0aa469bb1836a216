"""A lifecycle drawn with characters: each state once, with its moves below it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from esclusa.model.kind import Kind
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.stage import Stage


def draw(life: Lifecycle, notes: Mapping[str, str] | None = None) -> str:
    """A lifecycle as a tree of its states.

    For example::

        ● pending            taken by media.download
          └─▶ downloading    held by media.download
              ├─▶ success ■
              ├─▶ error      exhausted by media.download
              │   └─▶ ↩ pending
              └─▶ ↩ pending

    ``●`` marks the initial state, ``■`` a terminal state, ``↩`` a state drawn elsewhere.
    """
    children = _tree(life)
    rows: list[tuple[str, str]] = [(f"● {_name(life, life.initial)}", life.initial)]

    def below(state: str, indent: str) -> None:
        new = children[state]
        moves = [*new, *(t for t in life.targets(state) if t not in new)]
        for move in moves:
            last = move == moves[-1]
            arrow = "└─▶ " if last else "├─▶ "
            if move in new:
                rows.append((f"{indent}{arrow}{_name(life, move)}", move))
                below(move, indent + ("    " if last else "│   "))
            else:
                rows.append((f"{indent}{arrow}↩ {move}", ""))

    below(life.initial, "  ")
    width = max(len(text) for text, _ in rows) + 3
    return "\n".join(
        f"{text:<{width}}{(notes or {}).get(state, '')}".rstrip() for text, state in rows
    )


def _name(life: Lifecycle, state: str) -> str:
    return f"{state} ■" if state in life.terminal else state


def _tree(life: Lifecycle) -> dict[str, list[str]]:
    """Each state under the state that first reaches it, breadth first from the initial state."""
    children: dict[str, list[str]] = {s: [] for s in life.states}
    seen, queue = {life.initial}, [life.initial]
    for state in queue:
        for target in life.targets(state):
            if target not in seen:
                seen.add(target)
                queue.append(target)
                children[state].append(target)
    return children


def stage_notes(kind: Kind, stages: Sequence[Stage]) -> dict[str, str]:
    """What the stages do in each state."""
    notes: dict[str, list[str]] = {}
    for stage in (s for s in stages if s.kind == kind):
        ends = ((stage.hold, "held"), (stage.exhausted, "exhausted"))
        for state, done in (*((state, "taken") for state in stage.take), *ends):
            if state:
                notes.setdefault(state, []).append(f"{done} by {stage.name}")
    return {state: ", ".join(texts) for state, texts in notes.items()}
