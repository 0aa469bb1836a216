"""Documents that other programs write to Firestore are adopted and worked."""

from __future__ import annotations

import asyncio
import string
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from conformance.helpers import claim, claim_one, find_all, read, settle_all, settlement_of
from conformance.kinds import stage
from google.api_core.exceptions import FailedPrecondition
from hypothesis import given
from hypothesis import strategies as st

from esclusa.model.adoption import Adopted
from esclusa.model.columns import track
from esclusa.model.effects import Create
from esclusa.model.errors import StoreUnavailable
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.query import not_null, query
from esclusa.model.record import Record
from esclusa.model.settlement import Duplicate, Inserted, RecordWithChildren
from esclusa.stores.firestore.client import FirestoreClient
from esclusa.stores.firestore.untracked import UntrackedSearch, middle


@pytest.fixture(params=["firestore"])
def provider(request: pytest.FixtureRequest, providers: Callable[[str], Any]) -> Any:
    return providers(request.param)


class Post(Record, table="posts", key=("platform", "post_id")):
    """As the pipeline `replies` declares it: not attached."""

    platform: str
    post_id: str
    replies_count: int | None = None
    retry_count: int = 0
    lifecycle = Lifecycle("""
        noreplies -> processing | skipped | done
        processing -> done | noreplies | skipped
    """)


SUBMIT = stage("submit", Post.kind, take="noreplies", hold="processing", exhausted="skipped")
UPLOADED = datetime(2026, 1, 8, 12, tzinfo=UTC)


def post(number: int, **fields: Any) -> dict[str, Any]:
    """A post as the team's uploader writes it."""
    return {
        "platform": "twitter",
        "post_id": f"{number}",
        "country": "honduras",
        "status": "noreplies",
        "created_at": UPLOADED + timedelta(minutes=number),
        **fields,
    }


def random_id(rng: Random) -> str:
    return "".join(rng.choices(string.ascii_letters + string.digits, k=20))


async def upload(database: Any, *posts: dict[str, Any]) -> list[str]:
    async with database.google() as client:
        out = []
        for fields in posts:
            _, ref = await client.collection("posts").add(fields)
            out.append(ref.id)
        return out


async def stored(database: Any, path: str) -> dict[str, Any]:
    async with database.google() as client:
        return (await client.document(path).get()).to_dict()


@pytest.fixture
async def store(empty_database: Any, bare_store: Any) -> Any:
    await upload(empty_database, *[post(n) for n in range(13)])
    return await bare_store((Post.kind,), (SUBMIT,))


async def test_documents_of_others_are_adopted_and_worked(store: Any, empty_database: Any) -> None:
    leases = await claim(store, SUBMIT)
    assert [lease.record.post_id for lease in leases] == [str(n) for n in range(13)]
    assert all(lease.fault is None and len(lease.ref.id) == 20 for lease in leases)
    before = await stored(empty_database, f"posts/{leases[0].ref.id}")
    assert before["country"] == "honduras"
    assert before["created_at"] == UPLOADED
    await settle_all(store, *[settlement_of(lease, "done") for lease in leases])
    assert {p.status for p in await find_all(store, Post)} == {"done"}
    assert (await stored(empty_database, f"posts/{leases[0].ref.id}"))["country"] == "honduras"


async def test_a_migration_keeps_every_field(empty_database: Any, bare_store: Any) -> None:
    given = post(1, status="finished", created_at="27 Dec 2025", replies_count="many")
    [id] = await upload(empty_database, given)
    await bare_store((Post.kind,), (SUBMIT,))
    after = await stored(empty_database, f"posts/{id}")
    assert {name: after[name] for name in given} == given
    assert after["updated_at"] is None  # their count of today's changes reads it
    assert (after["attempts"], after["fence"], after["retry_count"]) == (0, 0, 0)


async def test_later_documents_are_taken_by_the_next_claim(store: Any, empty_database: Any) -> None:
    await claim(store, SUBMIT)
    [id] = await upload(empty_database, post(99))
    assert [lease.ref.id for lease in await claim(store, SUBMIT)] == [id]
    [id] = await upload(empty_database, post(100))
    assert (await claim_one(store, SUBMIT, id)).record.post_id == "100"


async def test_a_run_looks_for_documents_once_and_others_at_the_interval(
    empty_database: Any, bare_store: Any
) -> None:
    await upload(empty_database, post(1))
    store = await bare_store((Post.kind,), (SUBMIT,), adopt_every=3600.0)
    other = await bare_store((Post.kind,), (SUBMIT,), adopt_every=3600.0)
    assert len(await claim(store, SUBMIT)) == 1
    await upload(empty_database, post(2))
    assert await claim(store, SUBMIT) == []
    assert await claim(other, SUBMIT) == []
    began = await other.now()
    assert len(await claim(other, SUBMIT, before=began)) == 1
    reads = sum(other.reads.values())
    assert await claim(other, SUBMIT, before=began) == []
    assert sum(other.reads.values()) - reads <= 2
    await upload(empty_database, post(3))
    await store.adopt((Post.kind,), await store.now())
    assert len(await find_all(store, Post, where={"attempts": 0})) == 1


async def test_only_migrate_adopts_if_the_interval_is_0(
    empty_database: Any, bare_store: Any
) -> None:
    store = await bare_store((Post.kind,), (SUBMIT,), adopt_every=0.0)
    [id] = await upload(empty_database, post(1))
    assert await claim(store, SUBMIT) == []
    left = await store.unadopted(Post.kind)
    assert (left.table, left.count, left.examples) == ("posts", 1, (f"posts/{id}",))
    assert any("1 documents" in s.summary for s in await store.pending((Post.kind,), (SUBMIT,)))
    assert any("1 documents adopted" in x for x in await store.migrate((Post.kind,), (SUBMIT,)))
    assert await store.unadopted(Post.kind) is None
    assert len(await claim(store, SUBMIT)) == 1


async def test_values_of_other_types_break_neither_lists_nor_claims(
    empty_database: Any, bare_store: Any
) -> None:
    await upload(
        empty_database,
        post(1, created_at="2025-12-27T10:00:00", replies_count="12"),
        post(2, created_at="yesterday", due_at="soon", attempts="two"),
        post(3, created_at=None, replies_count="many"),
        post(4, post_id=4),
        {"platform": "x"},
        post(6),
    )
    store = await bare_store((Post.kind,), (SUBMIT,))
    listed, after = [], None
    while True:
        page = await store.find(query(Post, order="created_at", limit=1, after=after))
        listed += page.items
        if (after := page.next) is None:
            break
    assert len(listed) == 6
    shown = [Post.kind.as_json(record) for record in listed]
    assert {row["status"] for row in shown} == {"noreplies"}
    leases = {lease.record.post_id: lease for lease in await claim(store, SUBMIT)}
    assert {id for id, lease in leases.items() if lease.fault} == {
        "3",
        4,
        None,
    }  # "2" has only an odd creation time
    assert leases["1"].record.replies_count == 12
    assert "replies_count" in leases["3"].fault
    assert leases["6"].record.post_id == "6"


async def test_a_document_in_a_hold_state_is_left_to_its_program_until_it_is_abandoned(
    empty_database: Any, bare_store: Any
) -> None:
    """For ``abandoned_after`` seconds after its last write, 900 unless set."""
    [id] = await upload(empty_database, post(1, status="processing"))
    store = await bare_store((Post.kind,), (SUBMIT,))
    assert await claim(store, SUBMIT) == []
    store.clock_offset = 800.0
    assert await claim(store, SUBMIT) == []
    assert list(await store.foreign_locks(Post.kind, [id])) == [id]
    store.clock_offset = 1000.0
    assert await store.foreign_locks(Post.kind, [id]) == {}
    [lease] = await claim(store, SUBMIT)
    assert (lease.record.post_id, lease.taken) == ("1", "noreplies")


async def test_a_record_that_another_program_takes_is_left_to_it(
    store: Any, empty_database: Any
) -> None:
    [first, *_] = await find_all(store, Post, order="created_at")
    await empty_database.write("posts", "id", first.id, status="processing")
    leases = await claim(store, SUBMIT)
    assert len(leases) == 12
    assert first.id not in {lease.ref.id for lease in leases}
    assert await claim(store, SUBMIT, ids=(first.id,)) == []
    store.clock_offset = 1000.0
    assert first.id in {lease.ref.id for lease in await claim(store, SUBMIT)}


async def test_a_key_of_an_adopted_document_is_found(store: Any, empty_database: Any) -> None:
    [known] = [p.id for p in await find_all(store, Post, where={"post_id": "7"})]
    again = Post(platform="twitter", post_id="7")
    new = Post(platform="twitter", post_id="70")
    answers = await store.insert([new, again, new, again])
    assert answers == [
        Inserted("twitter:70"),
        Duplicate(known),
        Duplicate("twitter:70"),
        Duplicate(known),
    ]
    assert await store.insert([new]) == [Duplicate("twitter:70")]
    groups = [RecordWithChildren(again, [Post(platform="twitter", post_id="71")])]
    assert await store.insert_if_new(groups) == [None]
    groups = [RecordWithChildren(Post(platform="twitter", post_id="71"), [again])]
    assert await store.insert_if_new(groups) == [0]
    lease = (await claim(store, SUBMIT, limit=1))[0]
    fresh = Post(platform="twitter", post_id="72")
    await settle_all(store, settlement_of(lease, "done", effects=(Create(again), Create(fresh))))
    assert len(await find_all(store, Post, where={"post_id": "7"})) == 1
    assert len(await find_all(store, Post, where={"post_id": "72"})) == 1


async def test_inserts_of_one_key_meet_in_many_processes(
    store: Any, bare_store: Any, empty_database: Any
) -> None:
    others = [await bare_store() for _ in range(3)]
    for other in others:
        await other.use((Post.kind,), (SUBMIT,))
    records = [Post(platform="x", post_id=str(n % 10)) for n in range(40)]
    answers = await asyncio.gather(
        *(s.insert(records[k : k + 10]) for k, s in enumerate((store, *others)))
    )
    inserted = [a.id for batch in answers for a in batch if isinstance(a, Inserted)]
    assert len(inserted) == len(set(inserted)) == 10


async def test_a_search_without_its_index_holds_up_no_claim(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(op: str, query: Any, average: str | None) -> None:
        if op == "adopt":
            raise FailedPrecondition("The query requires an index")

    reports: list[Adopted] = []
    store.on_adopted = reports.append
    monkeypatch.setattr(FirestoreClient, "on_query", staticmethod(refuse))
    assert len(await claim(store, SUBMIT)) == 13
    assert "requires an index" in reports[0].refused["posts"]


class Folio(Record, table="folios", track=track(prefix="x_", status="status")):
    bucket: str | None = None
    lifecycle = Lifecycle("PENDING -> PROCESSING -> DONE")


class Documento(
    Record, table="documentos", within="folio_id", parent=Folio, track=track(prefix="x_")
):
    folio_id: str
    gcs_uri: str | None = None
    lifecycle = Lifecycle("""
        WAITING -> IN_PROGRESS -> DONE | ERROR
        IN_PROGRESS -> WAITING
    """)


READ = stage("read", Documento.kind, take="WAITING", hold="IN_PROGRESS", exhausted="ERROR")


async def test_sub_collections_are_adopted(empty_database: Any, bare_store: Any) -> None:
    async with empty_database.google() as client:
        for folio in ("f1", "f2"):
            await client.document(f"folios/{folio}").set({"bucket": "b", "status": "PROCESSING"})
            for n in range(3):
                uri = {"gcs_uri": f"gs://b/{folio}/{n}.pdf", "file_id": f"{n}.pdf"}
                await client.document(f"folios/{folio}/documentos/d{n}").set(uri)
        await client.document("elsewhere/x/documentos/y").set({"a": 1})
    store = await bare_store((Folio.kind, Documento.kind), (READ,))
    assert (await read(store, Folio, "f1")).status == "PROCESSING"
    leases = await claim(store, READ)
    assert {lease.ref.id for lease in leases} == {f"f{f}:d{n}" for f in (1, 2) for n in range(3)}
    assert {lease.record.folio_id for lease in leases} == {"f1", "f2"}
    assert (await stored(empty_database, "folios/f1/documentos/d0"))["file_id"] == "0.pdf"
    assert await stored(empty_database, "elsewhere/x/documentos/y") == {"a": 1}
    async with empty_database.google() as client:
        await client.document("folios/f3/documentos/new").set({"gcs_uri": "gs://b/f3/n.pdf"})
    assert [lease.ref.id for lease in await claim(store, READ)] == ["f3:new"]
    assert await store.unadopted(Documento.kind) is None


class Row(
    Record,
    table="rows",
    track=track(prefix="x_"),
    adopt={"done": {"file": not_null}},
):
    file: str | None = None
    lifecycle = Lifecycle("new -> busy -> done")


async def fill(database: Any, table: str, count: int, **fields: Any) -> None:
    async with database.google() as client:
        batch = client.batch()
        for number in range(count):
            batch.set(client.document(f"{table}/r{number:03}"), {"number": number, **fields})
        await batch.commit()


async def test_an_interrupted_migration_is_continued_by_the_same_rules(
    empty_database: Any, bare_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(empty_database, "rows", 450, file="a.jpg")
    store, each = await bare_store(), FirestoreClient.each

    async def fails(client: Any, writes: Any, op: str, **options: Any) -> Any:
        if op == "adopt" and client.writes["adopt"]:
            raise StoreUnavailable("cut")
        return await each(client, writes, op, **options)

    with monkeypatch.context() as patch:
        patch.setattr(FirestoreClient, "each", fails)
        with pytest.raises(StoreUnavailable):
            await store.migrate((Row.kind,), (), foreign=True)
    left = await store.unadopted(Row.kind)
    assert left.count == 150
    store.reads.clear()
    assert "adopt rows of rows as done" in await store.migrate((Row.kind,), (), foreign=True)
    assert store.reads["adopt"] < 400  # the first page is not read again
    await store.use((Row.kind,), ())
    counts = {c.state: c.count for c in await store.tally(Row.kind)}
    assert (counts["done"], counts["new"]) == (450, 0)


async def test_other_programs_write_while_documents_are_adopted(
    empty_database: Any, bare_store: Any
) -> None:
    await fill(empty_database, "rows", 100)
    store = await bare_store()

    async def write() -> None:
        async with empty_database.google() as client:
            for number in range(100):
                await client.document(f"rows/r{number:03}").update({"likes": number})

    await asyncio.gather(write(), store.migrate((Row.kind,), (), foreign=True))
    await store.migrate((Row.kind,), (), foreign=True)
    rows = await empty_database.rows("rows", "number")
    assert [row["likes"] for row in rows] == list(range(100))
    assert {(row["x_status"], row["x_fence"]) for row in rows} == {("new", 0)}


def test_what_looking_costs_is_stated() -> None:
    adopted = Adopted("rows", 1, {}, 100_000, {}, 60.0)
    assert adopted.reads_per_hour == 12_240  # as docs/firestore.md says


# The search


async def test_one_document_among_thousands_is_found_with_few_reads(
    empty_database: Any, bare_store: Any
) -> None:
    store, rng = await bare_store((Post.kind,), (SUBMIT,)), Random(5)
    ids = [f"twitter:{n}" for n in range(1500)] + [random_id(rng) for _ in range(1500)]
    await store.insert([Post(id=id, platform="x", post_id=id) for id in ids])
    wanted = await upload(empty_database, *[post(n) for n in range(5)])
    store.reads.clear()
    search = UntrackedSearch(store._client, Post.kind, "search")
    found = await search.run(100)
    assert (found.total, found.untracked) == (3005, 5)
    read = [d async for page in _pages(search, found) for d in page]
    assert sorted(d.name.rpartition("/")[2] for d in read) == sorted(wanted)
    assert store.reads["search"] < 400


async def _pages(search: UntrackedSearch, found: Any) -> Any:
    for each in found.ranges:
        async for page in search.read(each):
            yield page


_IDS = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs", "Cc"]), max_size=8)


@given(_IDS, _IDS, st.booleans())
def test_the_middle_of_two_names_is_between_them(one: str, two: str, is_open: bool) -> None:
    low, high = sorted((one, two))
    if low == high:
        return
    found = middle(low, None if is_open else high, 2)
    if found is not None:
        assert low < found
        assert is_open or found < high
        assert "/" not in found
