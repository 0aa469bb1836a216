"""Calls that must not act twice: the same key answers as it did the first time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from esclusa.engine.engine import Engine
from esclusa.model.errors import EsclusaError
from esclusa.model.query import null
from esclusa.model.record import Ref
from esclusa.model.settlement import ClaimRequest, Inserted, Settlement
from esclusa.model.system_records import IdempotentCall
from esclusa.model.value import value


class KeyReused(EsclusaError):
    """The key was used for another call before."""


class CallUnderWay(EsclusaError):
    """The first call with this key has not answered yet."""


@value
class Answer:
    """What was answered, as it went out."""

    code: int
    body: str
    media_type: str
    again: bool = False


class Idempotency:
    """A key is held under a lease while its call acts, so a process that dies leaves no key that can never be used."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def once(
        self,
        who: str,
        key: str,
        fingerprint: str,
        act: Callable[[], Awaitable[Answer]],
        *,
        final: Callable[[Answer], bool],
    ) -> Answer:
        """Act, and keep the answer under the key if it is ``final``; with a key that has one, answer it and do not act.

        Raises KeyReused if the key was used with another ``fingerprint``, CallUnderWay while the first call acts.
        """
        engine = self._engine
        call = IdempotentCall(
            who=who, key=key, fingerprint=fingerprint, called_at=engine.clock.now()
        )
        ref = Ref(call.kind, call.kind.id_of(who, key))
        if not isinstance((await engine.store.insert([call]))[0], Inserted):
            found = (await engine.store.get(ref.kind, [ref.id]))[0]
            if isinstance(found, IdempotentCall):
                if found.fingerprint != fingerprint:
                    raise KeyReused(
                        "this Idempotency-Key came with another path or body before; a new call needs a new key"
                    )
                if found.code is not None:
                    return Answer(found.code, found.body, found.media_type, again=True)
        lease = engine.options.lease
        ask = ClaimRequest(
            ref.kind,
            "esclusa.calls",
            ("kept",),
            None,
            (("code", null),),
            ids=(ref.id,),
            lease=lease,
            worker=engine.worker,
        )
        taken = await engine.store.claim(ask)
        if not taken:
            raise CallUnderWay(
                "the first call with this Idempotency-Key is still under way; ask again in a moment"
            )
        [held] = engine.leases.hold([taken[0]], lease)
        kept: Answer | None = None
        try:
            answer = await act()
            kept = answer if final(answer) else None
            return answer
        finally:
            engine.leases.release([held])
            fields = (
                {"code": kept.code, "body": kept.body, "media_type": kept.media_type}
                if kept
                else {}
            )
            end = Settlement(ref, "kept", ("kept",), taken[0].fence, fields, attempts=0, who=who)
            if kept is None:
                engine.settler.add(
                    end
                )  # a store that is away must not keep the caller waiting for nothing
            else:
                await engine.settler.settle(end)
