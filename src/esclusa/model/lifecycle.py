"""Lifecycles: the states a record may be in and the moves between them, written with arrows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field

from esclusa.model.errors import DeclarationError, UndeclaredMove
from esclusa.model.value import set_fields, value

_STATE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}\Z")


@value
class Lifecycle:
    """The states and moves of a kind of record.

    Each line is a chain of arrows; ``|`` separates alternatives; ``#`` starts a comment. The first
    state is the initial one; a state that no arrow leaves is terminal::

        pending -> downloading -> success
        downloading -> pending | error
        error -> pending

    Checked when declared: every state can be reached from the initial one, and some terminal state
    from every state (``endless=True``: there is no terminal state).

    ``failed`` names the states of failed records that no stage names as ``exhausted``; ``finished``
    those of finished records that are not terminal. Console and API show the role of each state.

    ``renamed`` gives states that earlier versions declared their present names:
    ``renamed={"fresh": "pending"}``. ``esclusa migrate`` and the workers move the records.

    ``foreign`` names states that only other programs use, in a table that they share with Esclusa.
    Records there are left alone; in any other undeclared state they are reported.
    """

    states: tuple[str, ...]
    moves: frozenset[tuple[str, str]]
    endless: bool
    failed: frozenset[str]
    finished: frozenset[str]
    renamed: Mapping[str, str] = field(hash=False)
    foreign: frozenset[str]
    _targets: dict[str, tuple[str, ...]] = field(repr=False, compare=False, hash=False)

    def __init__(
        self,
        text: str,
        *,
        failed: Collection[str] = (),
        finished: Collection[str] = (),
        endless: bool = False,
        renamed: Mapping[str, str] | None = None,
        foreign: Collection[str] = (),
    ) -> None:
        states, moves, faults = _parse(text)
        renamed = dict(renamed or {})
        if not faults:
            faults = _check(states, moves, endless=endless)
            faults += [
                f"{role} names {state!r}, which is not one of its states ({', '.join(states)})"
                for role, named in (("failed", failed), ("finished", finished))
                for state in named
                if state not in states
            ]
            faults += _rename_faults(states, renamed)
            faults += [
                f"foreign names {state!r}, which is one of its states or renamed"
                for state in foreign
                if state in states or state in renamed
            ]
        if faults:
            raise DeclarationError("lifecycle", faults)
        set_fields(
            self,
            states=tuple(states),
            moves=frozenset(moves),
            endless=endless,
            failed=frozenset(failed),
            finished=frozenset(finished),
            renamed=renamed,
            foreign=frozenset(foreign),
            _targets={s: tuple(t for t in states if (s, t) in moves) for s in states},
        )

    @property
    def initial(self) -> str:
        return self.states[0]

    @property
    def terminal(self) -> frozenset[str]:
        return frozenset(s for s in self.states if not self._targets[s])

    def targets(self, state: str) -> tuple[str, ...]:
        """The states that ``state`` can move to, in the order they were declared."""
        return self._targets.get(state, ())

    def sources(self, state: str) -> tuple[str, ...]:
        """The states that can move to ``state``, with their earlier names."""
        return self.with_earlier(s for s in self.states if (s, state) in self.moves)

    def current(self, state: str) -> str:
        """The present name of a state: another one if it was renamed."""
        return self.renamed.get(state, state)

    def with_earlier(self, states: Iterable[str]) -> tuple[str, ...]:
        """These states, then the earlier names of them: of records that are not moved yet."""
        present = tuple(states)
        return present + tuple(old for old, new in self.renamed.items() if new in present)

    def allows(self, frm: str, to: str) -> bool:
        """Whether the move is declared; ``frm`` may be an earlier name."""
        return (self.current(frm), to) in self.moves

    def check(self, frm: str, to: str, where: str) -> None:
        """Raise UndeclaredMove, naming ``where``, unless the move is declared."""
        if not self.allows(frm, to):
            raise UndeclaredMove(where, frm, to, self.targets(frm))

    def mermaid(self) -> str:
        """The lifecycle as a Mermaid state diagram."""
        lines = ["stateDiagram-v2", f"    [*] --> {self.initial}"]
        lines += [f"    {s} --> {t}" for s in self.states for t in self._targets[s]]
        lines += [f"    {s} --> [*]" for s in self.states if not self._targets[s]]
        return "\n".join(lines)


def _parse(text: str) -> tuple[list[str], set[tuple[str, str]], list[str]]:
    states: list[str] = []
    moves: set[tuple[str, str]] = set()
    faults: list[str] = []
    for number, written in enumerate(text.splitlines(), 1):
        line = written.split("#", 1)[0].strip()
        if not line:
            continue
        before: list[str] = []
        for segment in line.split("->"):
            names = [name.strip() for name in segment.split("|")]
            for name in names:
                if not _STATE.match(name):
                    faults.append(
                        f"line {number}: {name!r} is not a state name "
                        f"(letters, digits, _ and -; in {line!r})"
                    )
                elif name not in states:
                    states.append(name)
            for a in before:
                for b in names:
                    if a == b:
                        faults.append(
                            f"line {number}: {a} -> {b} is not a move; "
                            "waiting and retrying need no arrow"
                        )
                    moves.add((a, b))
            before = names
    if not states and not faults:
        faults.append("it has no states; write for example 'pending -> working -> done'")
    return states, moves, faults


def _check(states: list[str], moves: set[tuple[str, str]], *, endless: bool) -> list[str]:
    reached = _closure({states[0]}, moves)
    faults = [
        f"state {s} cannot be reached from the initial state {states[0]}"
        for s in states
        if s not in reached
    ]
    if endless:
        return faults
    terminal = {s for s in states if not any(a == s for a, _ in moves)}
    if not terminal:
        return [*faults, "it has no terminal state; if that is intended, set endless=True"]
    ends = _closure(terminal, {(b, a) for a, b in moves})
    return faults + [
        f"no terminal state can be reached from the state {s}" for s in states if s not in ends
    ]


def _rename_faults(states: list[str], renamed: Mapping[str, str]) -> list[str]:
    faults = []
    for old, new in renamed.items():
        if not isinstance(old, str) or not _STATE.match(old):
            faults.append(f"renamed: {old!r} is not a state name (letters, digits, _ and -)")
        elif old in states:
            faults.append(f"renamed: {old!r} is still one of its states ({', '.join(states)})")
        if new in renamed:
            faults.append(
                f"renamed: {old!r} becomes {new!r}, which is renamed itself; name the last state"
            )
        elif new not in states:
            faults.append(
                f"renamed: {old!r} becomes {new!r}, which is not one of its states"
                f" ({', '.join(states)})"
            )
    return faults


def _closure(start: set[str], moves: set[tuple[str, str]]) -> set[str]:
    seen: set[str] = set()
    while start := start - seen:
        seen |= start
        start = {b for a, b in moves if a in start}
    return seen
