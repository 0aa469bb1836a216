"""PostgreSQL: a claim takes nothing of a key that another claim has taken records of meanwhile."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from conformance.helpers import claim, claim_request, insert_new, set_clock
from conformance.kinds import CALL, Job

from esclusa.stores.postgres import claims
from esclusa.stores.postgres.key_limits import KeyTurns
from esclusa.stores.postgres.store import PostgresStore


@pytest.mark.parametrize("provider", ["postgres"], indirect=True)
async def test_a_claim_that_was_overtaken_takes_nothing(new_store: Any) -> None:
    store: PostgresStore = await new_store()
    now = await set_clock(store)
    await insert_new(store, *(Job(id=f"a{n}", post="a", due_at=now) for n in range(4)))
    request = claim_request(CALL)
    table, limits, offset = store._table(Job.kind), store._key_limits, store._offset
    await limits._make_turns(table, request.stage)
    assert request.per is not None
    ids, turns = await limits._choose(table, request, request.per, offset)
    assert len(ids) == 2
    early = [Job(id=f"b{n}", post="a", due_at=now - timedelta(hours=1)) for n in range(2)]
    await insert_new(store, *early)
    assert {lease.ref.id for lease in await claim(store, CALL)} == {"b0", "b1"}
    late = await claims.claim(
        store._connections,
        table,
        replace(request, ids=ids),
        offset,
        turns=KeyTurns(request.stage, request.per, turns),
    )
    assert late == []
