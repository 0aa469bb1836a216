"""Publishing the outbox to Pub/Sub, on its emulator: batches, ids, missing topics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random

import pytest
from support.pubsub import PROJECT, PubSubEmulator, Topic

from esclusa import App, Backoff, Lifecycle, Permanent, Record, To
from esclusa.artifacts.local import LocalArtifacts
from esclusa.engine.engine import Engine
from esclusa.engine.options import Options
from esclusa.health import check_settings
from esclusa.model.errors import SettingsError
from esclusa.model.system_records import DeadLetter, Message
from esclusa.model.system_records import publish as effect
from esclusa.publishers import open_publisher, publisher_for
from esclusa.publishers.pubsub import PubSubPublisher
from esclusa.settings import load
from esclusa.stores.sqlite import SqliteStore

pytestmark = pytest.mark.skipif(
    PubSubEmulator.missing() is not None, reason=PubSubEmulator.missing() or ""
)


@pytest.fixture(scope="module")
def emulator() -> Iterator[PubSubEmulator]:
    with PubSubEmulator() as started:
        yield started


@pytest.fixture
def topic(emulator: PubSubEmulator) -> Iterator[Topic]:
    made = emulator.topic()
    yield made
    made.close()


@pytest.fixture
async def publisher(emulator: PubSubEmulator) -> AsyncIterator[PubSubPublisher]:
    made = PubSubPublisher(PROJECT, emulator=emulator.host)
    await made.open()
    yield made
    await made.close()


def message(topic: str, number: int, **attributes: str) -> Message:
    return Message(id=f"m{number}", topic=topic, data={"número": number}, attributes=attributes)


async def read(topic: Topic, count: int) -> list[tuple[int, dict[str, str]]]:
    got = await asyncio.to_thread(topic.read, count)
    return sorted((json.loads(m.data)["número"], dict(m.attributes)) for m in got)


async def test_messages_carry_their_own_ids(publisher: PubSubPublisher, topic: Topic) -> None:
    short = topic.name.rpartition("/")[2]
    answers = await publisher.publish(
        [message(topic.name, 1, error_type="timeout"), message(short, 2)]
    )
    assert answers == [None, None]
    assert await read(topic, 2) == [
        (1, {"event_id": "m1", "error_type": "timeout"}),
        (2, {"event_id": "m2"}),
    ]


async def test_messages_are_split_into_requests(publisher: PubSubPublisher, topic: Topic) -> None:
    many = [message(topic.name, n) for n in range(1200)]
    large = [
        Message(id=f"l{n}", topic=topic.name, data={"número": 5000 + n, "x": "ñ" * 1_500_000})
        for n in range(4)
    ]
    assert await publisher.publish([*many, *large]) == [None] * 1204
    assert [number for number, _ in await read(topic, 1204)] == [*range(1200), *range(5000, 5004)]


async def test_a_bad_message_does_not_affect_the_others(
    publisher: PubSubPublisher, topic: Topic
) -> None:
    too_many = message(topic.name, 2, **{f"a{n}": "x" for n in range(101)})
    long = message(topic.name, 3, reason="ñ" * 2000)
    none = message(f"projects/{PROJECT}/topics/no-such-topic", 4)
    huge = Message(id="m5", topic=topic.name, data={"x": "y" * 10_000_000})
    unnamed = message(topic.name, 6, **{"": "x"})
    answers = await publisher.publish([message(topic.name, 1), too_many, none, long, huge, unnamed])
    assert [answer and answer.type for answer in answers] == [
        None,
        "invalid_message",
        "topic_not_found",
        None,
        "invalid_message",
        "invalid_message",
    ]
    assert all(answer is None or isinstance(answer, Permanent) for answer in answers)
    assert "gcloud pubsub topics create no-such-topic" in str(answers[2])
    assert [number for number, _ in await read(topic, 2)] == [1, 3]


async def test_an_unavailable_server_is_a_transient_failure() -> None:
    unavailable = PubSubPublisher(PROJECT, emulator="127.0.0.1:9", timeout=1.0)
    await unavailable.open()
    try:
        answer = (await asyncio.wait_for(unavailable.publish([message("t", 1)]), 60))[0]
    finally:
        await unavailable.close()
    assert answer is not None
    assert not answer.permanent
    assert answer.type == "pubsub_error"


class Parcel(Record, table="parcels", key="number"):
    number: int
    lifecycle = Lifecycle("packed -> sent")


async def test_the_outbox_publishes_what_settlements_wrote(
    publisher: PubSubPublisher, topic: Topic, tmp_path: Path
) -> None:
    app = App("post")

    @app.stage(Parcel, take="packed", retry=Backoff(tries=None))
    async def send(parcel: Parcel, at: object) -> To:
        where = "no-such-topic" if parcel.number == 7 else topic.name
        return To("sent", also=[effect(where, {"número": parcel.number}, kind="sent")])

    store = SqliteStore(str(tmp_path / "post.db"))
    await store.open()
    plan = app.bind(app.settings())
    engine = Engine(
        store,
        [plan],
        LocalArtifacts(tmp_path / "a"),
        options=Options(),
        rng=Random(1),
        publisher=publisher,
    )
    await store.migrate(engine.all_kinds, engine.all_stages)
    await store.use(engine.all_kinds, engine.all_stages)
    try:
        async with engine.running():
            await engine.records.insert([Parcel(number=n) for n in range(250)])
            await engine.run_cycle("post.send")
            run = await engine.run_cycle("esclusa.publish")
            assert (run.outcome, run.counters["published"], run.counters["failed"]) == (
                "partial",
                249,
                1,
            )
            letter = await engine.records.first(DeadLetter, {"table_name": "esclusa_outbox"})
            assert letter is not None
            assert letter.error_type == "topic_not_found"
    finally:
        await store.close()
    got = await read(topic, 249)
    assert [number for number, _ in got] == [n for n in range(250) if n != 7]
    assert len({attributes["event_id"] for _, attributes in got}) == 249


def test_a_full_topic_name_needs_no_publish_setting() -> None:
    def found(topic: str, **environ: str) -> tuple[str, list[str]]:
        app = App("post")

        @app.stage(Parcel, take="packed", retry=Backoff(tries=None), dead_letter_topic=topic)
        async def send(parcel: Parcel, at: object) -> To:
            return To("sent")

        settings = load(environ={"ESCLUSA_PIPELINES": "post", **environ}, apps=lambda _: app)
        warnings = [
            check.do for check in check_settings(settings) if "esclusa_outbox" in check.text
        ]
        return repr(publisher_for(settings.publish, settings.topics, environ={})), warnings

    assert found("projects/my-project/topics/dlq") == ("PubSubPublisher('my-project')", [])
    assert found("dlq", ESCLUSA_PUBLISH="pubsub://another") == ("PubSubPublisher('another')", [])
    assert found("dlq") == (
        "None",
        ["install esclusa[google] and set ESCLUSA_PUBLISH=pubsub://project"],
    )


async def test_a_lazy_publisher_reports_missing_credentials_for_each_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json")
    publisher = publisher_for(None, ["projects/my-project/topics/dlq"], environ={})
    assert publisher is not None
    await publisher.open()
    [answer] = await publisher.publish([message("dlq", 1)])
    assert answer is not None
    assert (answer.type, answer.permanent) == ("configuration", False)
    assert "credentials" in str(answer)
    await publisher.close()


def test_a_wrong_publisher_url_is_refused() -> None:
    for url in ("pubsub://", "kafka://x", "pubsub://p/t", "p"):
        with pytest.raises(SettingsError, match="ESCLUSA_PUBLISH"):
            open_publisher(url)
