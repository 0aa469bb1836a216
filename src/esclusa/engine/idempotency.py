"""Idempotent calls: a key that is sent again gets the first answer, and nothing is done twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from esclusa.engine.clock import StoreClock
from esclusa.engine.leases import HeldLease, LeaseRenewer
from esclusa.engine.options import Options
from esclusa.engine.settler import Settler
from esclusa.model.errors import EsclusaError
from esclusa.model.kind import Ref
from esclusa.model.query import null
from esclusa.model.settlement import ClaimRequest, Inserted, Settlement
from esclusa.model.system_records import IdempotentCall
from esclusa.model.value import value
from esclusa.ports.store import Store


class KeyReused(EsclusaError):
    """The key was used for another call."""


class CallUnderWay(EsclusaError):
    """The first call with this key has not answered yet."""


@value
class Answer:
    """An HTTP answer as it was sent. ``again``: it is the answer of an earlier call."""

    code: int
    body: str
    media_type: str
    again: bool = False


class Idempotency:
    """Holds each key under a lease while its call is under way.

    A process that dies leaves no key behind that can never be used again.
    """

    def __init__(
        self,
        store: Store,
        settler: Settler,
        leases: LeaseRenewer,
        clock: StoreClock,
        options: Options,
        worker: str,
    ) -> None:
        self._store = store
        self._settler = settler
        self._leases = leases
        self._clock = clock
        self._lease = options.lease
        self._worker = worker

    async def once(
        self,
        who: str,
        key: str,
        fingerprint: str,
        act: Callable[[], Awaitable[Answer]],
        *,
        final: Callable[[Answer], bool],
    ) -> Answer:
        """Call ``act`` and keep its answer if it is ``final``; a key with an answer gets that one.

        Raises KeyReused if the key was used with another ``fingerprint``, CallUnderWay while the
        first call is under way.
        """
        call = IdempotentCall(
            who=who, key=key, fingerprint=fingerprint, called_at=self._clock.now()
        )
        ref = Ref(call.kind, call.kind.id_of(who, key))
        [added] = await self._store.insert([call])
        if not isinstance(added, Inserted):
            [found] = await self._store.get(ref.kind, [ref.id])
            if isinstance(found, IdempotentCall):
                if found.fingerprint != fingerprint:
                    raise KeyReused(
                        "this Idempotency-Key was used with another path or body;"
                        " a new call needs a new key"
                    )
                if found.code is not None:
                    return Answer(found.code, found.body, found.media_type, again=True)
        held = await self._hold(ref)
        kept: Answer | None = None
        try:
            answer = await act()
            kept = answer if final(answer) else None
            return answer
        finally:
            self._leases.release([held])
            await self._settle(held, kept, who)

    async def _hold(self, ref: Ref) -> HeldLease:
        taken = await self._store.claim(
            ClaimRequest(
                ref.kind,
                "esclusa.calls",
                ("kept",),
                None,
                (("code", null),),
                ids=(ref.id,),
                lease=self._lease,
                worker=self._worker,
            )
        )
        if not taken:
            raise CallUnderWay(
                "the first call with this Idempotency-Key is still under way; try again in a moment"
            )
        [held] = self._leases.hold(taken, self._lease)
        return held

    async def _settle(self, held: HeldLease, kept: Answer | None, who: str) -> None:
        """End the lease. An answer that is kept is written before the caller gets it."""
        fields = (
            {}
            if kept is None
            else {"code": kept.code, "body": kept.body, "media_type": kept.media_type}
        )
        end = Settlement(held.ref, "kept", ("kept",), held.lease.fence, fields, attempts=0, who=who)
        if kept is None:
            self._settler.add(end)  # the caller need not wait for a store that does not answer
        else:
            await self._settler.settle(end)
