"""The histories of many records at once."""

from __future__ import annotations

from typing import Any

from conformance.helpers import claim, insert_new, settle_all, settlement_of
from conformance.kinds import WORK, Job

from esclusa.model.kind import Ref


async def test_histories_are_the_last_moves_of_each_record(store: Any) -> None:
    ids = await insert_new(store, *(Job(id=f"h{n}") for n in range(30)))
    for _ in range(25):
        leased = await claim(store, WORK, limit=1)
        await settle_all(store, settlement_of(leased[0], "pending"))
    wanted = [*ids, "absent", ids[0], "a\x00b"]
    found = await store.histories(Job.kind, wanted)
    alone = [await store.history(Ref(Job.kind, id)) for id in wanted]
    assert found == alone
    assert sum(map(len, found[:30])) >= 25
    last = await store.histories(Job.kind, wanted, each=2)
    assert last == [steps[-2:] for steps in alone]
    assert await store.histories(Job.kind, []) == []
