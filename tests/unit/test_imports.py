"""Files of rows as people and spreadsheets write them."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Thread

import pytest

from esclusa.imports import BadFile, ImportedRow, read_file


def rows(folder: Path, name: str, content: bytes) -> list[ImportedRow]:
    (folder / name).write_bytes(content)
    return list(read_file(folder / name))


@pytest.mark.parametrize(
    "content",
    [
        b"post_id,url\na,https://x/1;2\nb,\n",
        b'post_id;url\na;"https://x/1;2"\nb;\n',
        b"post_id\turl\r\na\thttps://x/1;2\r\nb\t\r\n",
        b"\xef\xbb\xbf post_id , url \r\n\r\na, https://x/1;2\r\nb\r\n",
    ],
)
def test_csv_as_spreadsheets_write_it(tmp_path: Path, content: bytes) -> None:
    """A spreadsheet in Spanish separates by semicolons."""
    assert rows(tmp_path, "a.csv", content) == [
        ImportedRow(1, {"post_id": "a", "url": "https://x/1;2"}),
        ImportedRow(2, {"post_id": "b", "url": None}),
    ]


@pytest.mark.parametrize(
    ("head", "why"),
    [(b"", "name every column"), (b"a,,b\n", "name every column"), (b"a,b, a\n1,2,3\n", "a twice")],
)
def test_a_wrong_header_is_refused(tmp_path: Path, head: bytes, why: str) -> None:
    with pytest.raises(BadFile, match=why):
        rows(tmp_path, "a.csv", head)


@pytest.mark.parametrize("form", ["csv", "ndjson"])
def test_a_file_that_is_not_utf8_reports_the_line_after_the_rows_before_it(
    tmp_path: Path, form: str
) -> None:
    many = 3000
    line = b'{"id": "%d"}\n' if form == "ndjson" else b"row %d\n"
    head = b"" if form == "ndjson" else b"id\n"
    *read, last = rows(
        tmp_path,
        f"a.{form}",
        head + b"".join(line % n for n in range(many)) + "caña\n".encode("latin-1"),
    )
    assert 0 < len(read) <= many
    assert all(row.values is not None for row in read)
    assert (last.number, last.values) == (read[-1].number + 1, None)
    assert f"line {many + (form == 'csv') + 1} is not UTF-8 text" in str(last.fault)
    with pytest.raises(BadFile, match=r"line 2 is not UTF-8 text .* at its byte 3"):
        rows(tmp_path, "b.csv", "id\ncaña\n".encode("latin-1"))


def test_a_pipe_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.csv")
    writer = Thread(target=(tmp_path / "a.csv").write_bytes, args=["id\nñ\n".encode("latin-1")])
    writer.start()
    with pytest.raises(BadFile, match="not UTF-8 text"):
        list(read_file(tmp_path / "a.csv"))
    writer.join()


def test_an_unclosed_quote_ends_the_file_after_the_rows_before_it(tmp_path: Path) -> None:
    *read, last = rows(tmp_path, "a.csv", b'id\na\n"' + b"b\n" * 100_000)
    assert [row.values for row in read] == [{"id": "a"}]
    assert "is not CSV" in str(last.fault)


def test_an_unknown_column_is_reported_once(tmp_path: Path) -> None:
    """Not once for each of a million rows."""
    (tmp_path / "a.csv").write_text("post_id;imagen_ulr\na;b\n")
    with pytest.raises(
        BadFile, match="imagen_ulr: there is no such column; there are post_id, imagen_url"
    ):
        list(read_file(tmp_path / "a.csv", ("post_id", "imagen_url")))
