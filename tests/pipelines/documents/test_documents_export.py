"""Exports of a folder: opened by DuckDB, openpyxl and pandas."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import duckdb
import openpyxl
import pandas as pd
import pytest
from pipelines.documents.conftest import DocumentsService, NewService
from pipelines.documents.test_review import balance, post
from support.command import CommandResult

from esclusa.app import open_runtime, open_store
from esclusa.cli import code_of
from esclusa.pipelines.documents import exports, workbook
from esclusa.pipelines.documents.records import Documento, Extraccion, Folio


async def download(service: DocumentsService, path: Path, form: str) -> Path:
    folio = await service.folio()
    url = f"{service.url}/documents/{folio.folio_id}/export?format={form}"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        assert response.status == 200, await response.text()
        target = path / f"export.{form}"
        target.write_bytes(await response.read())
    return target


@pytest.fixture
async def exported(new_service: NewService) -> DocumentsService:
    service = await new_service(local=True, serve=True, DOCUMENTS_LOCAL_PROCESSES=1)
    service.put("a/bad.pdf", balance(total="2.100.900"))
    service.put("a/good.pdf", balance())
    await service.process("gs://bkt/a")
    doc = (await service.docs())[0]
    wrong = next(e for e in await service.extractions(documento_id=doc.id) if e.value == "2100900")
    await post(service, doc, f"values/{wrong.id}", value="2100600", reason="a 9 for a 6")
    return service


async def test_exports_open_in_duckdb_openpyxl_and_pandas(
    exported: DocumentsService, tmp_path: Path
) -> None:
    rows: list[Any] = []
    for form, reader in (("csv", "read_csv"), ("parquet", "read_parquet")):
        path = await download(exported, tmp_path, form)
        query = (
            "select label, cast(value as bigint), period, currency, scale, page, x0 < x1, "
            f"corrected, cast(value_as_read as bigint) from {reader}('{path}') "
            "where label = 'Total activos' and period = '2024-12-31' order by document"
        )
        rows.append(duckdb.sql(query).fetchall())
    right = ("Total activos", 2100600, "2024-12-31", "CLP", 1000, 0, True)
    as_text = [tuple(str(v) if n == 2 else v for n, v in enumerate(row)) for row in rows[0]]
    assert as_text == [(*right, True, 2100900), (*right, False, 2100600)]
    assert [tuple(map(str, row)) for row in rows[1]] == [tuple(map(str, row)) for row in as_text]

    book = openpyxl.load_workbook(await download(exported, tmp_path, "xlsx"))
    assert book.sheetnames[0] == "Numbers"
    assert len(book.sheetnames) == 3
    sheet = book[book.sheetnames[1]]
    assert sheet.title.startswith("Estado de Situación Financiera"[:31])
    table = {row[1]: row[2:4] for row in sheet.iter_rows(min_row=6, values_only=True)}
    assert [c.value for c in sheet[5]] == ["section", "label", "2024-12-31", "2023-12-31"]
    assert table["Total activos"] == (2100600, 1890300)

    frame = pd.read_excel(tmp_path / "export.xlsx", sheet_name="Numbers")
    assert len(frame) == 32
    assert frame[frame.corrected].value_as_read.tolist() == [2100900]
    assert len(pd.read_csv(tmp_path / "export.csv")) == 32

    whole = json.loads((await download(exported, tmp_path, "json")).read_bytes())
    first = whole["documents"][0]
    assert len(first["numbers"]) == 16
    assert first["statements"][0]["columns"] == ["2024-12-31", "2023-12-31"]


@pytest.mark.parametrize("provider", ["sqlite"], indirect=True)
async def test_command_writes_each_format(
    exported: DocumentsService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    for name, value in exported.environ.items():
        monkeypatch.setenv(name, value)

    async def export(*words: str) -> CommandResult:
        capsys.readouterr()
        argv = ["documents", "export", *words]
        code = await asyncio.to_thread(
            code_of, argv, open_runtime=open_runtime, open_store=open_store
        )
        captured = capsys.readouterr()
        return CommandResult(code, captured.out, captured.err)

    folio = (await exported.folio()).folio_id
    for form, given in (("csv", ""), ("xlsx", "--format"), ("parquet", "-o"), ("json", "-")):
        path = tmp_path / f"numbers.{form}"
        options = {
            "": ["-o", str(path)],
            "--format": ["--format", form, "--output", str(path)],
            "-o": ["--output", str(path)],
            "-": ["--format", form, "--output", "-"],
        }[given]
        done = await export("gs://bkt/a" if form == "csv" else folio, *options)
        assert done.code == 0, done.err
        if given == "-":
            path.write_text(done.out)
    assert len(pd.read_csv(tmp_path / "numbers.csv")) == 32
    assert len(pd.read_parquet(tmp_path / "numbers.parquet")) == 32
    assert len(pd.read_excel(tmp_path / "numbers.xlsx", sheet_name="Numbers")) == 32
    assert len(json.loads((tmp_path / "numbers.json").read_text())["documents"]) == 2
    done = await export("no-such-folder")
    assert (done.code, "no-such-folder" in done.err) == (1, True)
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("provider", ["sqlite"], indirect=True)
async def test_statements_beyond_the_sheets_share_one(
    new_service: NewService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workbook, "MAX_STATEMENTS", 3)
    service = await new_service(local=True)
    folio = await fill(service, documents=6)
    path = tmp_path / "many.xlsx"
    await exports.write_export(service.runtime.records, folio, "xlsx", path)
    book = openpyxl.load_workbook(path)
    assert len(book.sheetnames) == 1 + 3 + 1
    shared = [row[0] for row in book["More statements"].iter_rows(values_only=True)]
    alone = [book[name]["A2"].value for name in book.sheetnames[1:4]]
    named = [text for text in shared if str(text).startswith("gs://")]
    assert sorted(alone + named) == [f"gs://bkt/f/{n}.pdf" for n in range(6)]
    assert [row[2] for row in book["More statements"].iter_rows(values_only=True)].count(1237) == 3


@pytest.mark.parametrize("provider", ["sqlite"], indirect=True)
async def test_texts_are_never_formulas(new_service: NewService, tmp_path: Path) -> None:
    service = await new_service(local=True, serve=True)
    await fill(service, documents=1, label="=1+1|cmd")
    path = await download(service, tmp_path, "csv")
    assert "'=1+1|cmd" in path.read_text()
    book = openpyxl.load_workbook(await download(service, tmp_path, "xlsx"))
    cells = [cell for sheet in book for row in sheet.iter_rows() for cell in row]
    assert any(cell.value == "=1+1|cmd" for cell in cells)
    assert all(cell.data_type != "f" for cell in cells)


@pytest.mark.parametrize("provider", ["sqlite"], indirect=True)
async def test_memory_does_not_grow_with_documents(new_service: NewService, tmp_path: Path) -> None:
    service = await new_service(local=True)
    records = service.runtime.records
    folios = [await fill(service, documents=n, prefix=f"f{n}") for n in (200, 1500)]
    for form in exports.FORMATS:
        peaks = []
        for folio in folios:
            tracemalloc.start()
            await exports.write_export(records, folio, form, tmp_path / f"{folio}.{form}")
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert peaks[1] < peaks[0] + 11_000_000, (form, peaks)


async def fill(
    service: DocumentsService, *, documents: int, label: str = "Caja", prefix: str = "f"
) -> str:
    """Insert a folder whose documents have four numbers each."""
    records = service.runtime.records
    folio = Folio(id=prefix, folio_id=prefix, bucket="bkt", folder_prefix=prefix, status="DONE")
    await records.insert([folio])
    for start in range(0, documents, 500):
        docs, values = [], []
        for number in range(start, min(documents, start + 500)):
            doc = Documento(
                id=Documento.kind.id_of(prefix, f"d{number}"),
                folio_id=prefix,
                slug=f"d{number}",
                gcs_uri=f"gs://bkt/{prefix}/{number}.pdf",
                generation="1",
                bucket="bkt",
                folder_prefix=prefix,
                doc_type="balance_sheet",
                revision=1,
                status="DONE",
            )
            docs.append(doc)
            values += [
                Extraccion(
                    folio_id=prefix,
                    documento_id=doc.id,
                    slug=f"1-{position}",
                    revision=1,
                    position=position,
                    gcs_uri=doc.gcs_uri,
                    generation="1",
                    type="LINE_ITEM_VALUE",
                    LINE_ITEM_NAME=label,
                    LINE_ITEM_VALUE="1.234",
                    value=str(Decimal(1234 + position)),
                    REPORTING_PERIOD="2024-12-31",
                    STATEMENT_TITLE="Balance",
                    TABLE_ROW_REF=f"t1.r{position}",
                    TABLE_CELL_REF=f"t1.r{position}.c1",
                )
                for position in range(4)
            ]
        await records.insert(docs)
        await records.insert(values)
    return prefix


def test_values_of_a_row_keep_their_columns_without_a_period() -> None:
    shared = {"statement": "Balance", "class": None, "document": "a", "currency": None}
    rows = [
        shared
        | {"scale": 1, "section": None, "label": "Caja", "column": None, "row_ref": "r1", "id": n}
        | {"period": period, "cell_ref": f"r1.c{n}", "value": Decimal(n)}
        for n, period in enumerate((None, None, None, "2024", "2023"))
    ]
    [table] = exports.tables_of(rows)
    assert [row["values"] for row in table.rows.values()] == [
        {"value": 0, "value #2": 1, "value #3": 2, "2024": 3, "2023": 4}
    ]
