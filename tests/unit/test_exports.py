"""Files of rows: what a reader finds in them, their memory, and what a fault leaves."""

from __future__ import annotations

import csv
import io
import json
import tracemalloc
from collections.abc import AsyncIterator, Iterable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from esclusa.exports import FORMATS, Column, ExportError, Format, encode, format_of, write_file
from esclusa.model.errors import SettingsError

COLUMNS = [
    Column("id"),
    Column("size", "int"),
    Column("share", "float"),
    Column("done", "bool"),
    Column("at", "time"),
    Column("day", "date"),
    Column("price", "decimal"),
    Column("data", "json"),
    Column("raw", "bytes"),
]
SANTIAGO = timezone(timedelta(hours=-3))
ROW: dict[str, Any] = {
    "id": 'ñandú, "quoted"\nline',
    "size": -5,
    "share": 0.25,
    "done": True,
    "at": datetime(2026, 11, 18, 9, 30, tzinfo=SANTIAGO),
    "day": date(2026, 11, 18),
    "price": Decimal("10.50"),
    "data": {"a": [1, "é"]},
    "raw": b"\xff\x00",
}


async def each(rows: Iterable[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
    for row in rows:
        yield row


async def written(path: Path, rows: Iterable[dict[str, Any]], columns: Any = COLUMNS) -> Path:
    await write_file(path, columns, each(rows))
    return path


def read(path: Path, select: str = "*") -> list[tuple[Any, ...]]:
    """The rows as DuckDB reads them."""
    reader = {"csv": "read_csv", "ndjson": "read_json", "parquet": "read_parquet"}[format_of(path)]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.execute(f"SELECT {select} FROM {reader}('{path}')").fetchall()


async def test_parquet_keeps_every_type(tmp_path: Path) -> None:
    path = await written(tmp_path / "a.parquet", [ROW, {"id": "2"}])
    [row, empty] = read(path, '* REPLACE ("at"::VARCHAR AS "at")')
    at = "2026-11-18 12:30:00+00"
    assert row[:7] == (
        ROW["id"], -5, 0.25, True, at, ROW["day"], Decimal("10.50"),
    )  # fmt: skip
    assert (json.loads(row[7]), row[8]) == (ROW["data"], ROW["raw"])
    assert empty == ("2", *[None] * 8)


async def test_csv_is_read_back_as_it_was(tmp_path: Path) -> None:
    path = await written(tmp_path / "a.csv", [ROW, {"id": "2"}])
    with path.open(encoding="utf-8", newline="") as file:
        [row, empty] = csv.DictReader(file)
    assert row == {
        "id": ROW["id"],
        "size": "-5",
        "share": "0.25",
        "done": "true",
        "at": "2026-11-18T12:30:00Z",
        "day": "2026-11-18",
        "price": "10.50",
        "data": '{"a":[1,"é"]}',
        "raw": "_wA=",
    }
    assert [*empty.values()] == ["2", *[""] * 8]
    assert read(path, 'epoch("at"::TIMESTAMPTZ)') == [(ROW["at"].timestamp(),), (None,)]


async def test_ndjson_has_one_object_per_line(tmp_path: Path) -> None:
    path = await written(tmp_path / "a.ndjson", [ROW, {"id": "2"}])
    [row, empty] = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert row["data"] == ROW["data"]
    assert (row["size"], row["done"], row["price"]) == (-5, True, "10.50")
    assert datetime.fromisoformat(row["at"]) == ROW["at"]
    assert empty == dict.fromkeys(row) | {"id": "2"}


@pytest.mark.parametrize(
    "text", ["=1+1", "+5", "-2+3", "@SUM(A1)", "\t=1", "\r=1", '=HYPERLINK("http://x")']
)
async def test_no_text_is_a_formula_in_csv(tmp_path: Path, text: str) -> None:
    path = await written(tmp_path / "a.csv", [{"id": text, "size": -1}])
    with path.open(encoding="utf-8", newline="") as file:
        [row] = csv.DictReader(file)
    assert (row["id"], row["size"]) == (f"'{text}", "-1")
    for name in ("a.ndjson", "a.parquet"):
        assert read(await written(tmp_path / name, [{"id": text}]))[0][0] == text


async def test_a_text_in_a_number_column_is_no_formula_either(tmp_path: Path) -> None:
    """Another program may have stored a text where a number or a time is declared."""
    path = await written(tmp_path / "a.csv", [{"size": "=1", "at": "=2", "done": "@x", "day": "-"}])
    assert path.read_text().splitlines()[1].split(",")[:6] == ["", "'=1", "", "'@x", "'=2", "'-"]


@pytest.mark.parametrize("form", FORMATS)
async def test_an_empty_list_is_a_readable_file(tmp_path: Path, form: Format) -> None:
    path = await written(tmp_path / f"a.{form}", [])
    assert await write_file(path, COLUMNS, each([])) == 0
    if form == "csv":
        assert path.read_bytes().decode() == ",".join(c.name for c in COLUMNS) + "\r\n"
    elif form == "ndjson":
        assert path.read_bytes() == b""
    else:
        assert read(path) == []


@pytest.mark.parametrize("form", FORMATS)
async def test_half_of_a_surrogate_pair_does_not_end_an_export(
    tmp_path: Path, form: Format
) -> None:
    rows = [{"id": "a\ud83d", "data": {"x": "\ude00"}}, {"id": "b"}]
    path = await written(tmp_path / f"a.{form}", rows, [Column("id"), Column("data", "json")])
    [(first, data), (second, _)] = read(path)
    assert (first, second) == ("a\ufffd", "b")
    assert "\ufffd" in str(data)


@pytest.mark.parametrize("form", FORMATS)
async def test_a_failing_source_leaves_the_file_as_it_was(tmp_path: Path, form: Format) -> None:
    path = await written(tmp_path / f"a.{form}", [ROW])
    before = path.read_bytes()

    async def failing() -> AsyncIterator[dict[str, Any]]:
        for number in range(2500):
            yield {"id": str(number)}
        raise RuntimeError("the database was lost")

    with pytest.raises(RuntimeError, match="lost"):
        await write_file(path, COLUMNS, failing())
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


async def test_a_value_that_does_not_fit_names_its_row(tmp_path: Path) -> None:
    rows = [{"id": str(n), "size": n if n != 1500 else "many"} for n in range(2000)]
    with pytest.raises(ExportError, match=r"row 1501: size does not fit a Parquet int64.*many"):
        await written(tmp_path / "a.parquet", rows)
    assert not [*tmp_path.iterdir()]
    assert len(read(await written(tmp_path / "a.csv", rows))) == 2000


async def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"none.a\.csv cannot be written: No such file"):
        await written(tmp_path / "none" / "a.csv", [ROW])
    (tmp_path / "b.csv").mkdir()
    with pytest.raises(ExportError, match=r"b\.csv cannot be written: Is a directory"):
        await written(tmp_path / "b.csv", [ROW])


async def test_the_name_gives_the_format(tmp_path: Path) -> None:
    assert [format_of(Path(f"x.{end}")) for end in ("csv", "CSV", "jsonl")] == [
        "csv", "csv", "ndjson",
    ]  # fmt: skip
    with pytest.raises(ExportError, match=r"must end in \.csv, \.ndjson, \.jsonl, \.parquet"):
        await written(tmp_path / "a.xlsx", [ROW])


async def test_without_pyarrow_parquet_is_refused_before_a_row_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("esclusa.engine.parquet.find_spec", lambda _name: None)
    with pytest.raises(SettingsError, match=r"pip install 'esclusa\[parquet\]'"):
        encode(COLUMNS, each([ROW]), "parquet")
    assert [chunk async for chunk in encode(COLUMNS, each([ROW]), "ndjson")]


@pytest.mark.parametrize("form", FORMATS)
async def test_memory_does_not_grow_with_the_rows(form: Format) -> None:
    """Peak of the second of two exports, ten times as large, within the first one's order."""

    async def rows(count: int) -> AsyncIterator[dict[str, Any]]:
        for number in range(count):
            yield {"id": f"{number:08}" * 4, "size": number}

    async def peak(count: int) -> int:
        tracemalloc.reset_peak()
        encoded = encode(COLUMNS[:2], rows(count), form)
        size = 0
        async for chunk in encoded:
            size += len(chunk)
        assert encoded.rows == count
        assert size
        return tracemalloc.get_traced_memory()[1]

    tracemalloc.start()
    try:
        await peak(1000)
        small, large = await peak(10_000), await peak(100_000)
    finally:
        tracemalloc.stop()
    assert large < small * 2 + (4 << 20)


async def test_many_batches_make_one_table(tmp_path: Path) -> None:
    for form in FORMATS:
        path = await written(
            tmp_path / f"a.{form}", ({"id": str(n), "size": n} for n in range(2600)), COLUMNS[:2]
        )
        found = read(path)
        assert sorted(row[1] for row in found) == list(range(2600))
    stream = io.BytesIO()
    async for chunk in encode(COLUMNS[:2], each([{"id": "1", "size": 1}]), "parquet"):
        stream.write(chunk)
    assert stream.getvalue()[:4] == stream.getvalue()[-4:] == b"PAR1"
