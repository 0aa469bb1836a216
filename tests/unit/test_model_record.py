"""Records: declarations become kinds, wrong ones are refused, keys never collide."""

from __future__ import annotations

from copy import copy
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from esclusa.model.columns import track
from esclusa.model.errors import BadRecord, DeclarationError, UndeclaredField
from esclusa.model.keys import ids_of_keys, join_id, key_id, key_ids, split_id
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.record import Record
from esclusa.model.strict_fields import assigned, set_stored

LIFE = Lifecycle("new -> done")


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Inner(BaseModel):
    a: int


class Sheet(
    Record, table="sheets", key=("org", "year"), index=[("org", "-year"), ("status", "due_at")]
):
    org: str
    year: int
    total: Decimal | None = None
    seen: datetime | None = None
    on: date | None = None
    flag: bool = False
    ratio: float = 0.0
    raw: bytes = b""
    colour: Colour = Colour.RED
    level: Level = Level.LOW
    mode: Literal["a", "b"] = "a"
    inner: Inner | None = None
    things: list[int] = []
    either: int | str | None = None
    anything: Any = None
    code: UUID | None = None
    short: Annotated[str, "x"] = ""

    lifecycle = LIFE


def test_fields_have_column_types() -> None:
    types = {f.name: (f.type, f.nullable) for f in Sheet.kind.fields}
    assert types == {
        "org": ("text", False),
        "year": ("int", False),
        "total": ("decimal", True),
        "seen": ("time", True),
        "on": ("date", True),
        "flag": ("bool", False),
        "ratio": ("float", False),
        "raw": ("bytes", False),
        "colour": ("text", False),
        "level": ("int", False),
        "mode": ("text", False),
        "inner": ("json", True),
        "things": ("json", False),
        "either": ("json", True),
        "anything": ("json", False),
        "code": ("text", True),
        "short": ("text", False),
    }


def test_a_kind_has_its_table_key_and_tracking() -> None:
    kind = Sheet.kind
    assert (kind.name, kind.table, kind.key, kind.initial, kind.attached, kind.history) == (
        "Sheet",
        "sheets",
        ("org", "year"),
        "new",
        False,
        True,
    )
    assert kind.columns["status"] == "status"
    assert kind.types["due_at"] == "time"
    assert kind.id_of("x", 2020) == kind.id_of(org="x", year=2020) == "x:2020"
    assert kind.identify(Sheet(org="x", year=1), lambda: "new") == "x:1"
    assert kind.identify(Sheet(id="own", org="x", year=1), lambda: "new") == "own"
    sheets = [Sheet(org="x", year=1), Sheet(id="own", org="x", year=1), Sheet(org="y:", year=2)]
    assert kind.identify_all(sheets, lambda: "new") == ["x:1", "own", "y:,2"]
    assert str(Sheet(id="q", org="x", year=1).ref) == "sheets q"


def test_a_record_without_key_gets_a_new_id() -> None:
    class Loose(Record, table="loose"):
        lifecycle = LIFE

    assert Loose.kind.identify(Loose(), lambda: "made") == "made"
    assert Loose.kind.identify_all([Loose(), Loose(id="own")], lambda: "made") == ["made", "own"]


def test_tracking_under_a_prefix_or_by_name() -> None:
    under = track(prefix="media_")
    assert under["status"] == "media_status"
    assert under.get("created_at") is None
    assert track(prefix="m_", created_at="creado")["created_at"] == "creado"
    named = track(
        attempts="attempt_count", leased_by="locked_by", created_at=None, finished_at="ended"
    )
    assert (named["attempts"], named["leased_by"], named["finished_at"], named["due_at"]) == (
        "attempt_count",
        "locked_by",
        "ended",
        "due_at",
    )
    assert named.get("created_at") is None

    class Media(Record, table="media", track=under, columns={"picture": "imagen"}, id="pk"):
        picture: str | None = None
        lifecycle = LIFE

    kind = Media.kind
    assert kind.attached
    assert (kind.columns["picture"], kind.columns["status"], kind.columns["id"]) == (
        "imagen",
        "media_status",
        "pk",
    )
    assert "created_at" not in kind.types


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"stats": "x"}, "stats is not a tracking value"),
        ({"due_at": None}, "due_at needs a column"),
        ({"fence": None}, "fence needs a column"),
        ({"status": "a b"}, "'a b' (for status) is not a column name"),
        ({"status": 'x"; DROP TABLE y'}, "is not a column name"),
        ({"status": "x", "attempts": "x"}, "column x is named for two"),
        ({"prefix": "1"}, "is not a column name"),
    ],
)
def test_a_wrong_column_map_is_refused(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        track(**options)
    assert any(fault in f for f in caught.value.faults), caught.value.faults


def declare(body: dict[str, Any], **options: Any) -> type[Record]:
    annotations = {
        n: v for n, v in body.items() if n != "lifecycle" and n not in body.get("__values__", {})
    }
    space = {"__annotations__": annotations, "__module__": __name__, **body.get("__values__", {})}
    if "lifecycle" in body:
        space["lifecycle"] = body["lifecycle"]
    return type(Record)("Wrong", (Record,), space, **{"table": "wrong", **options})


@pytest.mark.parametrize(
    ("body", "options", "fault"),
    [
        ({"a": str}, {}, "it has no lifecycle"),
        ({"a": str, "lifecycle": LIFE}, {"table": "bad name"}, "'bad name' is not a table name"),
        ({"a": str, "lifecycle": LIFE}, {"table": "x" * 64}, "is not a table name"),
        ({"a": str, "lifecycle": LIFE}, {"id": "a-b"}, "'a-b' is not a column name"),
        ({"a": str, "lifecycle": LIFE}, {"key": ("b",)}, "its key names b"),
        ({"a": str, "lifecycle": LIFE}, {"columns": {"b": "c"}}, "columns maps b"),
        ({"a": str, "lifecycle": LIFE}, {"columns": {"a": "c d"}}, "'c d' is not a column name"),
        ({"a": str, "lifecycle": LIFE}, {"index": [("b",)]}, "an index names b"),
        ({"a": str, "lifecycle": LIFE}, {"within": "b"}, "within names b"),
        ({"a": object, "lifecycle": LIFE}, {}, "a column cannot hold"),
        ({"a": time, "lifecycle": LIFE}, {}, "a column cannot hold"),
        ({"a": datetime | int, "lifecycle": LIFE}, {}, "a column cannot hold"),
        ({"status": str, "lifecycle": LIFE}, {}, "field status belongs to the tracking"),
        (
            {"media_status": str, "lifecycle": LIFE},
            {"track": track(prefix="media_")},
            "column media_status is both",
        ),
        ({"a": str, "lifecycle": LIFE}, {"columns": {"a": "due_at"}}, "column due_at is both"),
        ({"a": str, "b": str, "lifecycle": LIFE}, {"columns": {"b": "a"}}, "column a"),
        ({"a": str, "A": str, "lifecycle": LIFE}, {}, "two fields have the column A"),
        ({"kind": str, "lifecycle": LIFE}, {}, "field kind belongs to every record"),
        ({"a": str, "lifecycle": LIFE}, {"tabel": "x"}, "tabel= is not an option of a record"),
        (
            {"a": str, "lifecycle": LIFE},
            {"table": None, "tabel": "x"},
            "tabel= is not an option of a record",
        ),
    ],
)
def test_a_wrong_record_is_refused_when_declared(
    body: dict[str, Any], options: dict[str, Any], fault: str
) -> None:
    with pytest.raises(DeclarationError, match="record Wrong") as caught:
        declare(body, **options)
    assert any(fault in f for f in caught.value.faults), caught.value.faults


def test_bytes_are_shown_as_base64() -> None:
    class Blob(Record, table="blobs"):
        body: bytes
        lifecycle = LIFE

    shown = Blob.kind.as_json(Blob(body=b"\x00\xff"))
    assert shown["body"] == "AP8="


def test_all_faults_of_a_record_are_reported_at_once() -> None:
    with pytest.raises(DeclarationError) as caught:
        declare({"a": str}, table="bad name", key=("zz",))
    assert len(caught.value.faults) == 3


def test_a_wrong_type_in_a_record_names_every_field() -> None:
    with pytest.raises(BadRecord) as caught:
        Sheet.kind.draft({"org": 5, "year": "many", "total": "ten"})
    assert all(name in str(caught.value) for name in ("org", "year", "total"))
    assert Sheet.kind.draft({"org": "x", "year": "2020"}).year == 2020


def test_fields_are_checked_before_they_are_written() -> None:
    kind = Sheet.kind
    assert kind.check_fields({}) == {}
    assert kind.check_fields({"total": "1.50", "flag": True}) == {
        "total": Decimal("1.50"),
        "flag": True,
    }
    for fields, word in (
        ({"nope": 1}, "no field nope"),
        ({"org": "y"}, "part of the key"),
        ({"year": 1, "flag": "perhaps"}, "year"),
        ({"flag": 17}, "flag"),
    ):
        with pytest.raises(BadRecord, match=word):
            kind.check_fields(fields)
    with pytest.raises(BadRecord, match="no field status"):
        kind.check_fields({"status": "done"})


def test_a_records_json_shows_mapped_names_and_hides_the_lease() -> None:
    class Mapped(Record, table="mapped", track=track(attempts="tries")):
        size: int = 1
        lifecycle = LIFE

    shown = Mapped.kind.as_json(
        Mapped(id="a", status="new", attempts=2, due_at=datetime(2026, 1, 1, tzinfo=UTC))
    )
    assert (shown["tries"], shown["attempts"], shown["size"], shown["id"]) == (2, 2, 1, "a")
    assert "fence" not in shown
    assert "leased_by" not in shown


def test_a_copy_with_changes() -> None:
    sheet = Sheet(org="x", year=1)
    assert sheet.but(flag=True).flag
    assert not sheet.flag


part = st.one_of(
    st.text(max_size=30),
    st.integers(),
    st.none(),
    st.booleans(),
    st.sampled_from(["", ":", ",", "=", "~", ".", "..", "=3A", "\0", "None", "a:b", "a,b", " "]),
)
two_keys = st.integers(1, 4).flatmap(
    lambda n: st.tuples(*[st.lists(part, min_size=n, max_size=n)] * 2)
)


@given(two_keys)
@example((["a:", "b"], ["a", ":b"]))
@example((["a:", ""], ["a", None]))
@example((["a:b", "c"], ["a", "b:c"]))
@example((["a", "b,c"], ["a:b", "c"]))
@example((["a", "", "b"], ["a:", "b", ""]))
@example(([None], [""]))
@example(([None], ["None"]))
@example(([None], ["\0"]))
@example(([None], ["~"]))
@example((["."], ["=2E"]))
@example((["x" * 500], ["x" * 499]))
@example((["~"], ["=7E"]))
@example((["a "], ["a=20"]))
@example((["ñ" * 300], ["ñ" * 301]))
def test_two_keys_of_a_kind_never_share_an_id(keys: tuple[list[Any], list[Any]]) -> None:
    one, two = keys
    assume(
        [None if p is None else str(p) for p in one] != [None if p is None else str(p) for p in two]
    )
    assert key_id(one) != key_id(two)


@given(st.lists(part, min_size=1, max_size=4))
@example(["ñ" * 1000])
@example(["/"])
@example([""])
@example([".."])
def test_an_id_is_a_safe_name_everywhere(parts: list[Any]) -> None:
    id = key_id(parts)
    assert 0 < len(id.encode()) <= 400
    assert id not in (".", "..")
    assert id == id.strip()
    assert "  " not in id
    assert not set(id) & set("%/?#&;|<>`$*!()[]{}^\\\"'\n\t\r\0")
    assert key_id(parts) == id


@given(st.lists(part, min_size=2, max_size=4))
def test_the_first_part_of_an_id_is_found_again(parts: list[Any]) -> None:
    id = key_id(parts)
    assume(len("".join(map(str, parts)).encode()) < 100)
    found = split_id(id)
    if found is None:
        assert id.endswith((":", ","))  # the last part is empty
        return
    first = "~" if parts[0] is None else str(parts[0])
    assert found[0] == first
    if parts[0] is not None and first != "~":
        assert join_id(*found, len(parts)) == id


@given(st.lists(part, min_size=2, max_size=4), st.data())
def test_the_ids_of_many_keys_are_those_of_each(parts: list[Any], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(parts) - 1))
    values = data.draw(st.lists(part, max_size=5))
    assert key_ids(parts, place, values) == [
        key_id([*parts[:place], value, *parts[place + 1 :]]) for value in values
    ]


@given(st.integers(1, 4), st.data())
def test_the_ids_of_a_batch_are_those_of_each_key(length: int, data: st.DataObject) -> None:
    keys = data.draw(st.lists(st.tuples(*[part] * length), max_size=8))
    columns = list(zip(*keys, strict=True)) or [()] * length
    assert ids_of_keys(columns) == [key_id(key) for key in keys]


@pytest.mark.parametrize("text", ["", ".", "..", ".a", "a" * 500, "é" * 300, "a b", "a:b", "a\n"])
def test_the_id_of_an_unusual_key_is_the_same_in_a_batch(text: str) -> None:
    assert ids_of_keys([[text]]) == [key_id([text])]
    assert ids_of_keys([[text], [1]]) == [key_id([text, 1])]


def test_ids_stay_readable() -> None:
    assert key_id(["twitter", "123"]) == "twitter:123"
    assert key_id([Colour.RED, 5]) == "red:5"
    assert key_id(["12 Main St", "Ñuñoa", "東京", "हिन्दी"]) == "12 Main St:Ñuñoa:東京:हिन्दी"
    assert (
        key_id(["nueva_licitacion:1000-1-LE26", "phone-030"])
        == "nueva_licitacion:1000-1-LE26,phone-030"
    )
    assert key_id(["http://x/feed?a=1", 7]) == "http:=2F=2Fx=2Ffeed=3Fa=3D1,7"
    assert key_id([datetime(2026, 1, 1, tzinfo=UTC)]) == "2026-01-01T00:00:00=2B00:00"


@pytest.mark.parametrize(
    ("key", "given", "id"),
    [
        ("line", "12 Main St", ""),
        ("line", "a:b c", ""),
        ("line", "a/b", "a=2Fb"),
        ("line", "plain", ""),
        (("feed", "guid"), "http://x/feed:g7", "http:=2F=2Fx=2Ffeed,g7"),
        (("feed", "guid"), "ab:c", ""),
        (("feed", "guid"), "a/b", "a=2Fb"),
    ],
)
def test_an_unknown_id_that_looks_like_a_key_is_answered_with_the_id(
    key: str | tuple[str, ...], given: str, id: str
) -> None:
    class Thing(Record, table="things", key=key):
        line: str = ""
        feed: str = ""
        guid: str = ""
        lifecycle = Lifecycle("new -> done")

    message = str(Thing.kind.absent(given))
    assert message == f"there is no record {given!r} in things" + (
        f"; an id is made of its key: {id}" if id else ""
    )


class Letter(Record, table="letters", key="number"):
    number: int
    subject: str = ""
    tags: list[str] = []
    lifecycle = Lifecycle("new -> sent")


def test_unknown_fields_are_refused_and_the_known_ones_are_named() -> None:
    attempts: list[Any] = [
        lambda: Letter(number=1, subjekt="x"),  # type: ignore[call-arg]
        lambda: Letter(number=1).but(subjekt="x"),
        lambda: setattr(Letter(number=1), "subjekt", "x"),
    ]
    for attempt in attempts:
        with pytest.raises(UndeclaredField) as refused:
            attempt()
        assert str(refused.value) == ("letters has no field subjekt; it has number, subject, tags")
    assert Letter(number=1, status="sent", due_at=None).status == "sent"
    with pytest.raises(ValidationError):
        Letter(number="many")  # type: ignore[arg-type]


def test_a_row_with_columns_that_nobody_declared_is_read() -> None:
    row = {"number": 1, "subject": "x", "added_by_others": True}
    assert Letter.kind.draft(row) == Letter(number=1, subject="x")
    assert Letter.model_validate(row) == Letter(number=1, subject="x")


def test_assignments_are_noted_with_the_values_before() -> None:
    for letter in (
        Letter(number=1, subject="a"),
        Letter.kind.construct({"number": 1, "subject": "a"}),
        Letter.kind.draft({"number": 1, "subject": "a"}),
    ):
        assert assigned(letter) == {}
        letter.subject = "b"  # type: ignore[attr-defined]
        letter.subject = "c"  # type: ignore[attr-defined]
        letter.status = "sent"
        assert assigned(letter)["subject"] == "a"
        assert set(assigned(letter)) == {"subject", "status"}
        assert assigned(letter.but(subject="d")) == {}
        assert assigned(copy(letter)) == {}
        set_stored(letter, {"subject": "e"})
        assert set(assigned(letter)) == {"status"}
        assert letter.model_dump()["subject"] == "e"
