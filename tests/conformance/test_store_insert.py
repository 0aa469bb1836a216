"""Insert, deduplicate by key, get."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from conformance.helpers import (
    assert_chain,
    claim,
    claim_one,
    find_all,
    insert_new,
    is_near,
    read,
    retry_transient,
    settle,
    settle_all,
    settlement_of,
)
from conformance.kinds import (
    READ,
    TYPE,
    WORK,
    City,
    Colour,
    Job,
    Level,
    Note,
    Post,
    Sample,
    Typed,
)

from esclusa.model.errors import BadRecord
from esclusa.model.keys import key_id, key_ids
from esclusa.model.kind import Ref
from esclusa.model.settlement import (
    Duplicate,
    FanOut,
    Inserted,
    Lost,
    RecordWithChildren,
    Rejected,
    Settlement,
)


async def test_a_new_record_is_in_the_initial_state_and_due_now(store: Any) -> None:
    before = await store.now()
    answers = await store.insert([Post(platform="x", post_id="1")])
    after = await store.now()
    assert answers == [Inserted(Post.kind.id_of("x", "1"))]
    post = await read(store, Post, answers[0].id)
    assert (post.platform, post.post_id, post.status, post.attempts, post.fence) == (
        "x",
        "1",
        "waiting",
        0,
        0,
    )
    assert post.leased_by is None
    assert post.last_error is None
    for moment in (post.due_at, post.created_at, post.updated_at):
        assert before <= moment <= after
    assert await store.history(post.ref) == []


async def test_the_key_makes_the_id_and_a_record_without_key_gets_one(store: Any) -> None:
    ids = await insert_new(store, Job(), Job(), Job(id="mine"), Note(name="n/1"))
    assert len(set(ids)) == 4
    assert ids[2] == "mine"
    assert ids[3] == Note.kind.id_of("n/1")
    assert (await read(store, Job, ids[0])).id == ids[0]


@pytest.mark.promise(5)
async def test_an_existing_record_is_left_as_it_is(store: Any) -> None:
    [id] = await insert_new(store, Post(platform="x", post_id="1", note="first", jobs=7))
    was = await read(store, Post, id)
    assert await store.insert([Post(platform="x", post_id="1", note="second")]) == [Duplicate(id)]
    assert await read(store, Post, id) == was


@pytest.mark.promise(5)
async def test_duplicates_in_one_batch_answer_in_order_and_the_first_wins(store: Any) -> None:
    await insert_new(store, Note(name="old", text="kept"))
    batch = [
        Note(name="a", text="1"),
        Note(name="old", text="2"),
        Note(name="a", text="3"),
        Note(name="b"),
        Note(name="a", text="4"),
    ]
    answers = await store.insert(batch)
    assert answers == [
        Inserted("a"),
        Duplicate("old"),
        Duplicate("a"),
        Inserted("b"),
        Duplicate("a"),
    ]
    assert [(n.id, n.text) for n in await find_all(store, Note, order="id")] == [
        ("a", "1"),
        ("b", None),
        ("old", "kept"),
    ]


async def test_a_batch_may_mix_kinds_or_be_empty(store: Any) -> None:
    assert await store.insert([]) == []
    answers = await store.insert(
        [
            Note(name="1"),
            Post(platform="x", post_id="1"),
            Note(name="2"),
            Post(platform="x", post_id="1"),
        ]
    )
    assert answers == [Inserted("1"), Inserted("x:1"), Inserted("2"), Duplicate("x:1")]


@pytest.mark.promise(5)
async def test_one_record_per_key_under_concurrency(store: Any, new_store: Any) -> None:
    stores = [store, await new_store(), await new_store()]
    drafts = [Post(platform="x", post_id=str(n)) for n in range(60)]
    calls = [
        retry_transient(
            stores[n % 3].insert, [d.but(note=str(n)) for d in (drafts if n % 2 else drafts[::-1])]
        )
        for n in range(9)
    ]
    answers = [a for batch in await asyncio.gather(*calls) for a in batch]
    inserted = [a.id for a in answers if isinstance(a, Inserted)]
    assert sorted(inserted) == sorted(Post.kind.id_of("x", str(n)) for n in range(60))
    assert len(answers) == 9 * 60
    assert len(await find_all(store, Post)) == 60


async def test_tracking_of_a_draft_is_kept(store: Any) -> None:
    now = await store.now()
    due, made = now + timedelta(hours=3), now - timedelta(days=400, microseconds=1)
    draft = Job(id="j", status="working", due_at=due, created_at=made, attempts=3, leased_by="w9")
    await insert_new(store, draft)
    job = await read(store, Job, "j")
    assert (job.status, job.due_at, job.created_at, job.attempts, job.leased_by) == (
        "working",
        due,
        made,
        3,
        "w9",
    )
    assert is_near(job.updated_at, now)
    assert await claim(store, WORK) == []
    store.clock_offset += 3 * 3600 + 10
    [lease] = await claim(store, WORK)
    assert (lease.attempt, lease.taken) == (3, "pending")  # an orphan: not counted
    await assert_chain(store, job.ref)


async def test_every_type_is_read_as_it_was_written(store: Any) -> None:
    zone = timezone(timedelta(hours=-4))
    full = Sample(
        name="full",
        text="Ñandú “comillas” 'simples' \"dobles\" \\ % _ 🚚\n\ttab; DROP TABLE x; --",
        number=-(2**63),
        ratio=1.5e-300,
        flag=False,
        moment=datetime(2026, 4, 5, 23, 59, 59, 999999, tzinfo=zone),
        day=date(2024, 2, 29),
        price=Decimal("12345678901234567890.0100"),
        data={"ñ": [1, 2.5, None, True, {"a": "🚚"}], "": "", "q": 'a"b'},
        items=[{"a": 1}, "b", None],
        blob=bytes(range(256)),
    )
    other = Sample(
        name="other",
        text="",
        number=2**63 - 1,
        ratio=-0.1,
        flag=True,
        moment=datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC),
        day=date(1, 1, 1),
        price=Decimal("-0.5"),
        data={},
        items=[],
        blob=b"",
    )
    await insert_new(store, full, other, Sample(name="none"))
    for draft in (full, other, Sample(name="none")):
        got = await read(store, Sample, draft.name)
        for name in Sample.kind.by_name:
            assert getattr(got, name) == getattr(draft, name), name
            assert type(getattr(got, name)) is type(getattr(draft, name)), name
    assert (await read(store, Sample, "full")).moment.utcoffset() is not None


async def test_enums_models_and_sets_are_read_as_they_were_written(store: Any) -> None:
    """Claim, get and find return enums and models as declared."""
    seen = datetime(2026, 4, 5, 23, 59, 59, 5, tzinfo=UTC)
    fields: dict[str, Any] = {
        "colour": Colour.BLUE,
        "level": Level.HIGH,
        "size": "m",
        "token": UUID(int=7),
        "place": City(city="Lota", seen=seen),
        "places": [City(city="Penco")],
        "tags": {"a", "b"},
        "pair": (1, "x"),
        "times": {"first": seen},
    }
    await insert_new(store, Typed(name="full", **fields), Typed(name="none"))
    leased = await claim_one(store, TYPE, "full")
    for got in (
        leased.record,
        await read(store, Typed, "full"),
        (await find_all(store, Typed, order="id"))[0],
    ):
        for name, value in fields.items():
            assert getattr(got, name) == value, name
            assert type(getattr(got, name)) is type(value), name
        got._seen.append(1)
        assert got._seen == [1]
    other = {
        "colour": Colour.RED,
        "level": Level.LOW,
        "place": None,
        "tags": set(),
        "pair": (2, "y"),
    }
    await settle_all(store, settlement_of(leased, "done", fields=other))
    changed = await read(store, Typed, "full")
    assert {name: getattr(changed, name) for name in other} == other
    none = await read(store, Typed, "none")
    assert (none.colour, none.level, none.place, none.tags, none.pair) == (
        None,
        Level.LOW,
        None,
        set(),
        None,
    )


NULL, HALF, LARGE, NO_NUMBER = (
    "it contains a null character",
    "it contains half of a surrogate pair",
    "the number is too large",
    "it is not a number",
)
UNFIT: list[tuple[dict[str, Any], str]] = [
    ({"text": "a\0b"}, NULL),
    ({"text": "half \ud800 a pair"}, HALF),
    ({"data": {"a": ["b\0"]}}, NULL),
    ({"data": {"\0": 1}}, NULL),
    ({"data": {"a": "\ud800"}}, HALF),
    ({"number": 2**63}, LARGE),
    ({"number": -(2**63) - 1}, LARGE),
    ({"ratio": float("nan")}, NO_NUMBER),
]


@pytest.mark.parametrize(("fields", "why"), UNFIT, ids=lambda f: ascii(f).replace("\\", "/"))
async def test_a_value_that_one_store_cannot_hold_is_refused_by_every_store(
    store: Any, fields: dict[str, Any], why: str
) -> None:
    [(name, value)] = fields.items()
    message = f"{Sample.kind.table}.{name} cannot hold {value!r:.80}: {why}"
    with pytest.raises(BadRecord) as caught:
        await store.insert([Sample(name="b"), Sample(name="a", **fields)])
    assert str(caught.value) == message
    with pytest.raises(BadRecord) as caught:
        await store.insert_if_new(
            [RecordWithChildren(Note(name="n"), [Sample(name="a", **fields)])]
        )
    assert str(caught.value) == message
    assert await find_all(store, Sample) == []
    assert await find_all(store, Note) == []


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
async def test_a_decimal_that_is_not_a_number_is_refused_by_every_store(
    store: Any, number: str
) -> None:
    with pytest.raises(BadRecord, match=r"price cannot hold .*: it is not a number"):
        await store.insert(
            [Sample.model_construct(**{**Sample(name="a").__dict__, "price": Decimal(number)})]
        )


async def test_a_settlement_with_such_a_value_is_rejected_and_the_others_are_settled(
    store: Any,
) -> None:
    await insert_new(
        store, Note(name="a", url="u"), Note(name="b", url="u"), Note(name="c", url="u")
    )
    a, b, c = sorted(await claim(store, READ), key=lambda lease: lease.ref.id)
    verdicts = await settle(
        store,
        *(
            settlement_of(x, "read", fields={"text": text})
            for x, text in ((a, "\\u0000"), (b, "nul \0"), (c, "\ud800"))
        ),
    )
    assert [type(verdict) for verdict in verdicts[1:]] == [Rejected, Rejected]
    assert [v.why for v in verdicts[1:]] == [
        f"{Note.kind.table}.text cannot hold 'nul \\x00': {NULL}",
        f"{Note.kind.table}.text cannot hold '\\ud800': {HALF}",
    ]
    assert [(n.id, n.status, n.text) for n in await find_all(store, Note, order="id")] == [
        ("a", "read", "\\u0000"),
        ("b", "fresh", None),
        ("c", "fresh", None),
    ]


async def test_numbers_that_json_lacks_become_null(store: Any) -> None:
    data = {"a": float("nan"), "b": [float("inf"), 1.5], "c": "\\u0000", "d": "NaN"}
    await insert_new(store, Sample(name="a", data=data, ratio=float("inf")))
    got = await read(store, Sample, "a")
    assert (got.data, got.ratio) == (
        {"a": None, "b": [None, 1.5], "c": "\\u0000", "d": "NaN"},
        float("inf"),
    )


@pytest.mark.parametrize("kind", [Note, Job], ids=lambda k: k.kind.table)
async def test_an_id_that_no_record_can_have_is_not_found(store: Any, kind: Any) -> None:
    await insert_new(store, Job(id="a"), Note(name="a"))
    odd = ["a\0", "\0", "\ud800", "", "x" * 3000, "a"]
    assert [r and r.id for r in await store.get(kind.kind, odd)] == [None] * 5 + ["a"]
    for id in odd[:-1]:
        ref = Ref(kind.kind, id)
        assert await store.history(ref) == []
        move = Settlement(ref, kind.kind.initial, (kind.kind.initial,), None, who="me")
        assert await settle(store, move) == [Lost(ref)]


async def test_any_text_can_be_an_id(store: Any) -> None:
    names = ["a b", "año/ñ", "..", ".", "%41", "a:b", "🚚", "'; --", '"', "x" * 5000, "A", "a"]
    ids = await insert_new(store, *[Note(name=n) for n in names])
    assert len(set(ids)) == len(names)
    found = await store.get(Note.kind, ids)
    assert [n.name for n in found] == names


async def test_get_returns_records_in_order_and_none_for_absent_ones(store: Any) -> None:
    await insert_new(store, Note(name="a"), Note(name="b"))
    found = await store.get(Note.kind, ["b", "zz", "a", "b"])
    assert [n and n.id for n in found] == ["b", None, "a", "b"]
    assert await store.get(Note.kind, []) == []
    assert await store.get(Post.kind, ["a"]) == [None]


async def test_a_large_batch_is_inserted_in_one_call(store: Any) -> None:
    answers = await store.insert([Job(id=f"j{n:05}", rank=n) for n in range(5000)])
    assert len(answers) == 5000
    assert (await store.count(_all(Job)))[0] == 5000


def _all(kind: Any) -> Any:
    from esclusa.model.query import query

    return query(kind)


# a record with children


def _with_children(name: str, *posts: str) -> RecordWithChildren:
    return RecordWithChildren(
        Note(name=name),
        [
            Job(id=f"job of {name}"),
            FanOut(Post(platform=name, post_id="", note="ñ"), "post_id", posts),
        ],
    )


async def test_a_record_and_its_children_are_inserted_together(store: Any) -> None:
    before = await store.now()
    assert await store.insert_if_new([_with_children("a/b", "1", "~", "2", "", "1")]) == [5]
    posts = await find_all(store, Post, order="id")
    assert {p.id for p in posts} == {Post.kind.id_of("a/b", n) for n in ("1", "~", "2", "")}
    assert {
        (p.platform, p.note, p.status, p.attempts, p.fence, p.jobs, p.leased_by) for p in posts
    } == {("a/b", "ñ", "waiting", 0, 0, 0, None)}
    assert all(before <= moment for p in posts for moment in (p.due_at, p.created_at, p.updated_at))
    assert (await read(store, Job, "job of a/b")).status == "pending"


@pytest.mark.promise(4)
async def test_no_child_of_an_existing_record_is_inserted(store: Any) -> None:
    await insert_new(store, Note(name="n", text="old"))
    assert await store.insert_if_new([_with_children("n", "1", "2")]) == [None]
    assert await find_all(store, Post) == []
    assert await find_all(store, Job) == []
    assert (await read(store, Note, "n")).text == "old"


async def test_an_existing_child_is_left_as_it_is(store: Any) -> None:
    await insert_new(store, Post(platform="n", post_id="1", note="old"))
    assert await store.insert_if_new([_with_children("n", "1", "2")]) == [2]
    assert (await read(store, Post, "n:1")).note == "old"


async def test_a_fan_out_over_a_field_outside_the_key(store: Any) -> None:
    assert await store.insert_if_new(
        [RecordWithChildren(Note(name="n"), [FanOut(Job(lane="b"), "rank", [1, 2, 3])])]
    ) == [3]
    assert sorted((j.lane, j.rank) for j in await find_all(store, Job)) == [
        ("b", 1),
        ("b", 2),
        ("b", 3),
    ]


@pytest.mark.promise(5)
async def test_one_of_several_concurrent_inserts_succeeds(new_store: Any) -> None:
    stores = [await new_store() for _ in range(4)]
    answers = await asyncio.gather(
        *(
            s.insert_if_new([_with_children("n", *(f"{i}-{k}" for k in range(20)))])
            for i, s in enumerate(stores)
        )
    )
    assert sorted(answers, key=str) == [[21], [None], [None], [None]]
    assert len({p.post_id[0] for p in await find_all(stores[0], Post)}) == 1


async def test_a_refused_child_leaves_nothing_behind(store: Any) -> None:
    with pytest.raises(BadRecord):
        await store.insert_if_new(
            [
                RecordWithChildren(
                    Note(name="n"),
                    [Job(id="j"), Post(platform="x", post_id="1", status="no such state")],
                )
            ]
        )
    assert await find_all(store, Note) == []
    assert await find_all(store, Job) == []


async def test_many_records_with_children_at_once(store: Any) -> None:
    """An existing record, new ones, one repeated in the call, and two that share a child."""
    await insert_new(store, Note(name="known"), Post(platform="b", post_id="2"))
    shared = Job(id="shared")
    groups = [
        _with_children("known", "1"),
        _with_children("a", "1", "2"),
        _with_children("b", "1", "2", "3"),
        _with_children("a", "3"),
        RecordWithChildren(Note(name="c"), [shared]),
        RecordWithChildren(Note(name="d"), [shared, Job(id="own")]),
        RecordWithChildren(Note(name="e"), []),
    ]
    assert await store.insert_if_new(groups) == [None, 3, 3, None, 1, 1, 0]
    assert {n.name for n in await find_all(store, Note)} == {"known", "a", "b", "c", "d", "e"}
    assert {j.id for j in await find_all(store, Job)} == {"job of a", "job of b", "shared", "own"}
    assert {p.id for p in await find_all(store, Post)} == {
        Post.kind.id_of(*k) for k in ("a1", "a2", "b1", "b2", "b3")
    }
    assert await store.insert_if_new(groups) == [None] * 7
    assert await store.insert_if_new([]) == []


async def test_more_records_with_children_than_one_write_holds(store: Any) -> None:
    assert (
        await store.insert_if_new(
            [RecordWithChildren(Note(name=f"{n}"), [Job(id=f"{n}")]) for n in range(700)]
        )
        == [1] * 700
    )
    assert len({j.id for j in await find_all(store, Job)}) == 700


def test_ids_of_a_fan_out_are_those_of_its_keys() -> None:
    values = ["a", "", ".", "~", None, "ñ:ü", "x" * 400, 3, "y" * 380]
    for parts, index in (
        (["k", None], 1),
        (["a:b", ".", None], 2),
        ([None], 0),
        (["z" * 350, 0, "t"], 1),
    ):
        assert key_ids(parts, index, values) == [
            key_id([*parts[:index], v, *parts[index + 1 :]]) for v in values
        ]
