"""Firestore's limits of size, length and depth."""

from __future__ import annotations

import math
from typing import Any

import pytest
from conformance.helpers import (
    assert_chain,
    claim,
    find_all,
    insert_new,
    read,
    settle_all,
    settlement_of,
)
from conformance.kinds import WORK, Job, Note, Post, Sample

from esclusa.model.effects import Add, Create
from esclusa.model.errors import BadRecord
from esclusa.model.kind import Ref
from esclusa.model.settlement import Duplicate, Rejected, Settled
from esclusa.stores.firestore.codec import Document, encode_json, stored_size

pytestmark = pytest.mark.parametrize("provider", ["firestore"], indirect=True)


async def test_too_large_record_is_refused_with_name_and_size(store: Any) -> None:
    with pytest.raises(
        BadRecord,
        match=r"t_jobs big: the record would take 1,1\d\d,\d\d\d bytes;"
        r" a Firestore document holds 1,048,576",
    ):
        await store.insert([Job(id="small"), Job(id="big", result="x" * 1_100_000)])
    assert await find_all(store, Job) == []


async def test_size_is_counted_as_firestore_counts_it(store: Any) -> None:
    """An integer takes 8 bytes in a document, and less in the message."""
    with pytest.raises(BadRecord, match="t_samples numbers: the record would take 1,1"):
        await store.insert([Sample(name="numbers", items=[1] * 140_000)])
    await insert_new(
        store,
        Sample(name="numbers", items=[1] * 120_000),
        Sample(name="text", text="x" * 1_000_000),
    )


async def test_settlement_that_makes_a_record_too_large_is_rejected_alone(
    store: Any,
) -> None:
    await insert_new(
        store, *[Job(id=f"j{n}", lane="x" * 900_000 if n == 1 else "a") for n in range(3)]
    )
    leases = sorted(await claim(store, WORK), key=lambda lease: lease.ref.id)
    verdicts = await store.settle(
        [settlement_of(lease, "done", fields={"result": "x" * 200_000}) for lease in leases]
    )
    assert [type(v) for v in verdicts] == [Settled, Rejected, Settled]
    assert "t_jobs j1: the record would take 1,1" in verdicts[1].why
    await assert_chain(store, leases[1].ref, [("pending", "working")])
    await settle_all(store, settlement_of(leases[1], "failed"))


async def test_settlement_with_an_unstorable_value_is_rejected_alone(
    store: Any,
) -> None:
    await insert_new(store, Post(platform="x", post_id="1"), *[Job(id=f"j{n}") for n in range(4)])
    leases = sorted(await claim(store, WORK), key=lambda lease: lease.ref.id)
    fields = [{"rank": 1}, {"rank": 2**70}, {"result": "half \ud800"}, {}]
    effects = [
        (),
        (Add(Post, "x:1", jobs=1),),
        (),
        (Add(Post, "x:1", jobs=1), Create(Job(id="n" * 1500))),
    ]
    verdicts = await store.settle(
        [
            settlement_of(x, "done", fields=f, effects=e)
            for x, f, e in zip(leases, fields, effects, strict=True)
        ]
    )
    assert [type(v) for v in verdicts] == [Settled, Rejected, Rejected, Rejected]
    assert (await read(store, Post, "x:1")).jobs == 0
    assert [(await read(store, Job, x.ref.id)).status for x in leases] == [
        "done",
        "working",
        "working",
        "working",
    ]


async def test_commit_has_at_most_500_writes_and_4_megabytes(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[tuple[int, int]] = []
    commit = store._client.commit

    async def counted(writes: Any, *args: Any, **options: Any) -> Any:
        sizes.append((len(writes), sum(w.ByteSize() for w in writes)))
        return await commit(writes, *args, **options)

    monkeypatch.setattr(store._client, "commit", counted)
    await insert_new(store, *[Job(id=f"j{n:04}") for n in range(1200)])
    leases = await claim(store, WORK, limit=1200)
    await settle_all(store, *[settlement_of(lease, "done") for lease in leases])
    assert len(leases) == 1200
    assert max(count for count, _ in sizes) == 500
    await insert_new(store, *[Job(id=f"large{n}", result="x" * 900_000) for n in range(9)])
    assert max(size for _, size in sizes) < 4_000_000
    leases = await claim(store, WORK)
    await settle_all(
        store, *[settlement_of(lease, "done", fields={"result": "y" * 900_000}) for lease in leases]
    )


@pytest.mark.parametrize(
    "id",
    [
        "a/b",
        "/",
        "//",
        ".",
        "..",
        "__x__",
        "____",
        "％",
        "％S",
        "a b\tc\n",
        "ñ€😀",
        "x" * 1400,
        "#?&=+%",
        " ",
        "\x01",
        "-",
        "0",
    ],
)
async def test_ids_with_any_characters(store: Any, id: str) -> None:
    await insert_new(store, Job(id=id, post="p/1"), Note(name=id, url="u"))
    assert await store.insert([Job(id=id)]) == [Duplicate(id)]
    assert await store.insert([Note(name=id)]) == [Duplicate(Note.kind.id_of(id))]
    [lease] = await claim(store, WORK)
    assert lease.ref.id == id
    await settle_all(store, settlement_of(lease, "done"))
    assert [job.id for job in await find_all(store, Job, where={"id": id})] == [id]
    await assert_chain(store, Ref(Job.kind, id), [("pending", "working"), ("working", "done")])


async def test_key_may_be_longer_than_a_document_name(store: Any) -> None:
    await insert_new(store, Note(name="n" * 5000), Note(name="n" * 5001))
    assert await store.insert([Note(name="n" * 5000)]) == [Duplicate(Note.kind.id_of("n" * 5000))]


@pytest.mark.parametrize("id", ["x" * 1500, "ñ" * 751, "/" * 400])
async def test_too_long_id_is_refused_and_not_found(store: Any, id: str) -> None:
    with pytest.raises(BadRecord, match="too long for a Firestore document name"):
        await store.insert([Job(id=id)])
    assert await store.get(Job.kind, [id]) == [None]
    assert await find_all(store, Job, where={"id": id}) == []


def nest(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {"end": [1, {"a": []}]}
    for _ in range(levels):
        value = {"in": value}
    return value


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"": ""},
        {"a.b": {"c.d": 1}},
        {"__x__": 1},
        {"`": 1, "\\": 2},
        {"k" * 2000: 1},
        {"_json": "1"},
        nest(12),
        nest(19),
        nest(40),
        {"big": 2**63, "small": -(2**63)},
        {"list": [[1, [2]], []]},
        {"float": 1e308, "zero": -0.0},
        {"ñ": "\\u0000"},
        {"n": None},
    ],
)
async def test_json_of_any_shape_round_trips(store: Any, data: dict[str, Any]) -> None:
    await insert_new(store, Sample(name="s", data=data, items=[data, None, ""]))
    found = await read(store, Sample, "s")
    assert (found.data, found.items) == (data, [data, None, ""])


async def test_deeply_nested_error_is_stored(store: Any) -> None:
    await insert_new(store, Job(id="j"))
    [lease] = await claim(store, WORK)
    error = {"type": "deep", "message": "", "details": nest(30)}
    await settle_all(store, settlement_of(lease, "failed", error=error))
    assert (await read(store, Job, "j")).last_error == error
    assert (await store.history(lease.ref))[-1].error == error


async def test_empty_text_and_special_numbers(store: Any) -> None:
    await insert_new(
        store, Sample(name="s", text="", blob=b""), Sample(name="inf", ratio=-math.inf)
    )
    found = await read(store, Sample, "s")
    assert (found.text, found.blob) == ("", b"")
    assert [s.name for s in await find_all(store, Sample, where={"text": ""})] == ["s"]
    assert (await read(store, Sample, "inf")).ratio == -math.inf
    # Firestore could hold the last two, but other stores cannot: all stores refuse them.
    for unfit in ({"number": 2**63}, {"ratio": math.nan}, {"data": {"ñ": "\0"}}):
        with pytest.raises(BadRecord):
            await store.insert([Sample(name="unfit", **unfit)])
    assert await store.get(Sample.kind, [Sample.kind.id_of("unfit")]) == [None]


def test_size_equals_that_of_firestores_documented_example(provider: Any) -> None:
    document = Document()
    task = {
        "type": "Personal",
        "done": False,
        "priority": 1,
        "description": "Learn Cloud Firestore",
    }
    for name, value in task.items():
        document.fields[name].CopyFrom(encode_json(value))
    assert (
        stored_size("projects/p/databases/d/documents/users/jeff/tasks/my_task_id", document.fields)
        == 147
    )
