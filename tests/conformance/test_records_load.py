"""Load very many records: two parts at a time where the keys allow it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import pytest
from conformance.databases import SQL
from conformance.helpers import find_all, insert_new, retry_transient
from conformance.kinds import Job, Note, Post

from esclusa.engine.records import Records
from esclusa.model.errors import BadRecord
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.record import Record
from esclusa.model.settlement import Duplicate, Inserted

Answers = list[Inserted | Duplicate]


class SlowStore:
    """A store whose inserts begin late, the first ones last; it counts those under way."""

    def __init__(self, store: Any, seconds: float = 0.05) -> None:
        self._store, self._seconds = store, seconds
        self.now = self.most = self.begun = 0

    async def insert(self, records: Sequence[Record]) -> Answers:
        self.now += 1
        self.begun += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(self._seconds / self.begun)
            answers: Answers = await self._store.insert(records)
            return answers
        finally:
            self.now -= 1


@pytest.fixture
async def slow(store: Any) -> AsyncIterator[SlowStore]:
    slow = SlowStore(store)
    yield slow
    assert slow.now == 0, "something is written after the end of the load"


async def loaded(store: Any, records: Iterable[Record], size: int) -> Answers:
    parts = [part async for part in Records(store).load(records, size=size)]
    assert {len(part) for part in parts[:-1]} <= {size}
    return [answer for part in parts for answer in part]


@pytest.mark.promise(5)
async def test_two_parts_without_a_common_key_are_written_at_a_time(slow: SlowStore) -> None:
    drafts = (Post(platform="x", post_id=str(n)) for n in range(95))
    assert await loaded(slow, drafts, 10) == [
        Inserted(Post.kind.id_of("x", str(n))) for n in range(95)
    ]
    assert (slow.most, slow.begun) == (2, 10)


@pytest.mark.promise(5)
async def test_of_a_key_in_two_parts_the_first_record_is_stored(
    slow: SlowStore, store: Any
) -> None:
    names = [f"n{n}" for n in range(10)]
    drafts = [Note(name=name, text="first") for name in names]
    again = [Note(name=name, text="second") for name in reversed(names)]
    other = [Note(name=f"o{n}", text="first") for n in range(10)]
    answers = await loaded(slow, [*drafts, *again, *other], 10)
    assert answers == [
        *map(Inserted, names),
        *map(Duplicate, reversed(names)),
        *(Inserted(f"o{n}") for n in range(10)),
    ]
    assert {note.text for note in await find_all(store, Note)} == {"first"}
    assert slow.most == 2  # the second and the third


@pytest.mark.parametrize(
    "drafts",
    [
        [Job(lane=str(n)) for n in range(12)],
        [
            each
            for n in range(6)
            for each in (Note(name=f"{n}"), Post(platform="x", post_id=f"{n}"))
        ],
        [
            *(Note(name=f"{n}") for n in range(3)),
            *(Post(platform="x", post_id=f"{n}") for n in range(3)),
        ],
        [Note(id="own", name=f"{n}") for n in range(9)],
    ],
    ids=["no key", "two kinds", "one kind after the other", "one id"],
)
async def test_other_parts_are_written_one_after_the_other(
    slow: SlowStore, drafts: list[Record]
) -> None:
    answers = await loaded(slow, drafts, 3)
    assert len(answers) == len(drafts)
    assert slow.most == 1


async def test_a_part_that_cannot_be_stored_ends_the_load_in_its_place(
    slow: SlowStore, store: Any
) -> None:
    drafts = [Note(name=f"n{n}") for n in range(50)]
    drafts[15] = Note(name="n15", number=2**70)
    answered: list[int] = []

    async def load() -> None:
        async for part in Records(slow).load(drafts, size=10):  # type: ignore[arg-type]
            answered.append(len(part))

    with pytest.raises(BadRecord, match="number"):
        await load()
    assert answered == [10]
    stored = {note.name for note in await find_all(store, Note)}
    first, behind = ({f"n{n}" for n in range(start, start + 10)} for start in (0, 20))
    assert first <= stored <= first | behind  # of its own part, nothing
    drafts[15] = Note(name="n15")
    answers = await loaded(store, drafts, 10)
    assert sum(isinstance(answer, Inserted) for answer in answers) == 50 - len(stored)
    assert len(await find_all(store, Note)) == 50


async def test_a_load_that_is_cancelled_ends_what_it_writes(slow: SlowStore, store: Any) -> None:
    drafts = [Note(name=f"n{n}") for n in range(50)]
    load = asyncio.create_task(loaded(slow, drafts, 10))
    while slow.begun < 4:
        await asyncio.sleep(0.001)
    load.cancel()
    with pytest.raises(asyncio.CancelledError):
        await load
    assert slow.now == 0
    assert len(await loaded(store, drafts, 10)) == 50
    assert len(await find_all(store, Note)) == 50


async def test_a_load_that_is_left_early_ends_what_it_writes(slow: SlowStore) -> None:
    load = Records(slow).load((Note(name=f"n{n}") for n in range(50)), size=10)  # type: ignore[arg-type]
    assert len(await anext(load)) == 10
    await load.aclose()  # type: ignore[attr-defined]
    assert slow.now == 0


@pytest.mark.promise(5)
async def test_many_records_of_which_some_are_known(store: Any) -> None:
    known = await insert_new(store, *(Note(name=f"n{n:04}", text="old") for n in (7, 1103)))
    drafts = [Note(name=f"n{n:04}") for n in range(1200)]
    answers = await store.insert([*drafts, *drafts[:5]])
    expected = [Duplicate(d.name) if d.name in known else Inserted(d.name) for d in drafts]
    assert answers == [*expected, *(Duplicate(d.name) for d in drafts[:5])]
    assert [n.name for n in await find_all(store, Note, where={"text": "old"})] == known


@pytest.mark.promise(5)
async def test_loads_of_the_same_records_at_the_same_time(store: Any, new_store: Any) -> None:
    stores = [store, await new_store(), await new_store()]
    drafts = [Post(platform="x", post_id=f"{n}") for n in range(1300)]
    calls = [
        retry_transient(loaded, each, drafts if n % 2 else drafts[::-1], 600)
        for n, each in enumerate(stores)
    ]
    answers = [answer for load in await asyncio.gather(*calls) for answer in load]
    assert len(answers) == 3 * 1300
    inserted = [answer.id for answer in answers if isinstance(answer, Inserted)]
    assert len(inserted) == len(set(inserted)) <= 1300
    assert len(await find_all(store, Post)) == 1300


class Person(
    Record,
    table="persons",
    key="name",
    refs={"boss": "persons"},
    foreign_keys=("boss",),
):
    """A record that may need another one of its table."""

    name: str
    boss: str | None = None

    lifecycle = Lifecycle("kept -> gone")


@pytest.mark.parametrize("provider", SQL, indirect=True)
async def test_a_part_may_need_records_of_the_one_before(bare_store: Any) -> None:
    store = await bare_store((Person.kind,), ())
    drafts = [Person(name=f"p{n}", boss=f"p{n - 10}" if n >= 10 else None) for n in range(50)]
    assert await loaded(SlowStore(store), drafts, 10) == [Inserted(f"p{n}") for n in range(50)]
