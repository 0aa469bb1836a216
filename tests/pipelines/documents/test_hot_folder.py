"""Reading documents must not write their folder: Firestore takes one write a second."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from esclusa.stores.firestore.client import FirestoreClient

pytestmark = pytest.mark.parametrize("provider", ["firestore"], indirect=True)


async def test_folder_is_not_written_for_each_document(
    service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: Counter[str] = Counter()
    commit = FirestoreClient.commit

    async def counted(self: FirestoreClient, unit: Any, *args: Any, **options: Any) -> Any:
        done = await commit(self, unit, *args, **options)
        for write in unit:
            path = (write.update.name or write.delete).partition("/documents/")[2].split("/")
            writes["/".join(path[::2])] += 1
        return done

    monkeypatch.setattr(FirestoreClient, "commit", counted)
    service.fill("f", 60)
    answer = await service.process("gs://bkt/f")
    assert answer["counters"]["DONE"] == 60
    assert writes["folios/documentos"] >= 60 * 3  # created, claimed, settled
    assert writes["folios"] < 30  # created, begun, listed, supervised at most once a second, closed
