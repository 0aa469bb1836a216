"""The local processor: how well it reads, and its parts."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pipelines.documents import corpus_a, corpus_b, corpus_c, statement_words, statements
from pipelines.documents.bombs import page_bomb, tree_bomb
from pipelines.documents.corpus_score import measure

from esclusa import Failure
from esclusa.pipelines.documents.local import DocumentViewer, LocalProcessor, pdf_words
from esclusa.pipelines.documents.local.classifier import title_class
from esclusa.pipelines.documents.local.money import currency_of, document_currency, scale_of
from esclusa.pipelines.documents.local.numbers import (
    Convention,
    convention_of,
    is_amount,
    is_dash,
    is_note,
    value_of,
)
from esclusa.pipelines.documents.local.page_split import DocumentPart, split
from esclusa.pipelines.documents.local.periods import periods
from esclusa.pipelines.documents.local.reader_pool import ReaderPool
from esclusa.pipelines.documents.local.statement import read_document
from esclusa.pipelines.documents.processors import Source
from esclusa.pipelines.documents.sample_statements import pdf, statement

# Megabytes of memory of a reader.
MEMORY = 500


@pytest.mark.parametrize(
    ("part", "recall", "precision"),
    [
        (statements.tuned, 0.98, 0.98),
        (statements.held_out, 0.95, 0.97),
        (corpus_a.documents, 0.95, 0.97),
        (corpus_b.documents, 0.98, 0.98),
    ],
)
def test_recall_precision_and_boxes(part: object, recall: float, precision: float) -> None:
    score = measure(part(48, seed=77))  # type: ignore[operator]
    assert score.recall >= recall, score.report()
    assert score.precision >= precision, score.report()
    assert score.boxes >= 0.98, score.report()
    assert score.classes == score.documents, score.report()
    for name in ("year", "currency", "scale", "org", "title", "total", "printed"):
        assert score.fields[name] >= 0.97 * score.right, score.report()
    assert score.fields["section"] >= 0.93 * score.right, score.report()


def test_statements_unknown_to_the_rules() -> None:
    score = measure(corpus_c.documents(50, seed=7))
    assert score.recall >= 0.95, score.report()
    assert score.precision >= 0.97, score.report()
    assert score.boxes >= 0.98, score.report()
    assert score.classes == score.documents, score.report()


def test_spans_point_to_the_value_in_the_text() -> None:
    made = statements.make("s", statements.Style(rotate=270), Random(2), statement_words.TUNED)
    text = pdf_words.read_pdf(made.content).text
    items = [i for i in read_document(made.content)["items"] if i["type"] == "LINE_ITEM_VALUE"]
    assert items
    for item in items:
        span = item["text_spans"][0]
        assert text[span["start"] : span["end"]] == item["LINE_ITEM_VALUE"]


def test_sample_statements_are_read_completely() -> None:
    for doc_type, rows in (("balance_sheet", 11), ("income_statement", 7), ("cash_flow", 7)):
        answer = read_document(statement(doc_type, "Pesquera Isla Negra SpA", 2025, Random(1)))
        values = [i for i in answer["items"] if i["type"] == "LINE_ITEM_VALUE"]
        assert (answer["doc_type"], len(values)) == (doc_type, 2 * rows)
        assert {
            (i["COLUMN_YEAR"], i["REPORTING_PERIOD"], i["CURRENCY"], i["UNITS_SCALE"])
            for i in values
        } == {
            ("2025", "2025-12-31", "CLP", 1000),
            ("2024", "2024-12-31", "CLP", 1000),
        }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(812.440)", "-812440"),
        ("1.234.567", "1234567"),
        ("-5", "-5"),
        ("0", "0"),
        ("1.234,56", "1234.56"),
        ("(0,35)", "-0.35"),
        ("−1.000", "-1000"),
        ("$1.500", "1500"),
        ("$ (1.500)", "-1500"),
        ("1.500-", "-1500"),
        ("US$ 12", "12"),
        ("007", "7"),
        ("$ 5.410.-", "5410"),
        ("-$ 5.410", "-5410"),
        ("U$S 5.410", "5410"),
        ("Ch$5.410", "5410"),
        ("5.410(1)", "5410"),
        ("(5.410)(a)", "-5410"),
        (",45", "0.45"),
    ],
)
def test_values_with_dots_for_thousands(text: str, value: str) -> None:
    assert value_of(text, Convention(".", ",")) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,234,567", "1234567"),
        ("(1,234.50)", "-1234.50"),
        ("0.125", "0.125"),
        ("1 234 567", "1234567"),
        ("(.05)", "-0.05"),
        ("₪1,234", "1234"),
        ("₺1,234", "1234"),
        ("฿ 1,234", "1234"),
        ("1,234₽", "1234"),
        ("kr 1,234", "1234"),
        ("NT$1,234", "1234"),
        ("+1,234", "1234"),
    ],
)
def test_values_with_commas_for_thousands(text: str, value: str) -> None:
    assert value_of(text, Convention(",", ".")) == value


@pytest.mark.parametrize(
    ("texts", "decimal"),
    [
        (["812.440", "1.234"], ","),
        (["812,440"], "."),
        (["1.234,5"], ","),
        (["1,234.5"], "."),
        (["12.5", "1,234"], "."),
        (["0,35", "12.000"], ","),
        ([".125", "1,234"], "."),
        ([], "."),
    ],
)
def test_unambiguous_amounts_decide_the_convention(texts: list[str], decimal: str) -> None:
    assert convention_of(texts).decimal == decimal


def test_amounts_and_other_texts() -> None:
    assert all(is_amount(t) for t in ("1", "(1)", "1.234", "-12", "$5", "2024"))
    assert not any(
        is_amount(t) for t in ("", "a", "12a", "1.2.3.4", "31-12-2024", "S.A.", "7(a)", "12%")
    )
    assert all(is_dash(t) for t in ("-", "–", "—", "--"))
    assert all(is_note(t) for t in ("4", "12.1", "5-6", "7(a)", "3, 4"))


@pytest.mark.parametrize(
    ("text", "year", "ends"),
    [
        ("31-12-2024", 2024, "2024-12-31"),
        ("31/12/24", 2024, "2024-12-31"),
        ("Dic-24", 2024, "2024-12-31"),
        ("dic. 2024", 2024, "2024-12-31"),
        ("31 de diciembre de 2024", 2024, "2024-12-31"),
        ("30 de junio del 2023", 2023, "2023-06-30"),
        ("December 31, 2024", 2024, "2024-12-31"),
        ("30 Sep 2022", 2022, "2022-09-30"),
        ("Feb-24", 2024, "2024-02-29"),
        ("Q3 2024", 2024, "2024-09-30"),
        ("2024", 2024, None),
        ("FY2024", 2024, None),
        ("2024-06-30", 2024, "2024-06-30"),
        ("Mar'25", 2025, "2025-03-31"),
        ("Junio 30 de 2024", 2024, "2024-06-30"),
        ("30-VI-2024", 2024, "2024-06-30"),
        ("31.XII.24", 2024, "2024-12-31"),
    ],
)
def test_periods(text: str, year: int, ends: str | None) -> None:
    found = periods(text)
    assert len(found) == 1
    assert (found[0].year, found[0].ends.isoformat() if found[0].ends else None) == (year, ends)


@pytest.mark.parametrize("text", ["1.234", "12,024", "99", "32-13-2024 x", "Nota 12", "20.240"])
def test_other_texts_are_no_periods(text: str) -> None:
    assert periods(text) == ()


@pytest.mark.parametrize(
    ("text", "scale", "currency"),
    [
        ("(En miles de pesos chilenos)", 1000, "CLP"),
        ("M$", 1000, "CLP"),
        ("MM$", 1_000_000, "CLP"),
        ("MUS$", 1000, "USD"),
        ("ThUS$", 1000, "USD"),
        ("(In thousands of U.S. dollars)", 1000, "USD"),
        ("Amounts in millions of euros", 1_000_000, "EUR"),
        ("US$ '000", 1000, "USD"),
        ("(Expresado en millones de pesos mexicanos)", 1_000_000, "MXN"),
        ("Expresado en dólares", 1, "USD"),
        ("Capital", None, None),
        ("(EUR 1,000)", 1000, "EUR"),
        ("en 1.000 euros", 1000, "EUR"),
        ("Capital of USD 1,000", None, "USD"),
        ("Figures in USD k", 1000, "USD"),
        ("ThCh$", 1000, "CLP"),
        ("MCh$", 1_000_000, "CLP"),
        ("Mill. US$", 1_000_000, "USD"),
        ("USD5,410", None, "USD"),
        ("MX$ 5,410", None, "MXN"),
        ("5 410 zł", None, "PLN"),
    ],
)
def test_units(text: str, scale: int | None, currency: str | None) -> None:
    assert (scale_of(text), currency_of(text)) == (scale, currency)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Estado de Situación Financiera", "balance_sheet"),
        ("BALANCE GENERAL", "balance_sheet"),
        ("Consolidated Balance Sheets", "balance_sheet"),
        ("Estado de Resultados Integrales", "income_statement"),
        ("Statement of Profit or Loss", "income_statement"),
        ("Income Statement", "income_statement"),
        ("Estado de Flujos de Efectivo", "cash_flow"),
        ("Statements of Cash Flows", "cash_flow"),
        ("Estado de Cambios en el Patrimonio", "changes_in_equity"),
        ("Statement of Changes in Stockholders' Equity", "changes_in_equity"),
        ("Balanza de comprobación", "trial_balance"),
        ("Balance de comprobación y saldos", "trial_balance"),
        ("Nota 4 - Estado de Flujos de Efectivo", None),
        ("Notas a los estados financieros", None),
        ("Estimados señores", None),
    ],
)
def test_titles(text: str, found: str | None) -> None:
    assert title_class(text) == found


async def test_class_of_another_classifier_is_used() -> None:
    content = pdf(
        [
            (x, 700 - 15 * n, 10, text)
            for n in range(4)
            for x, text in ((72, f"Item {n}"), (400, f"1,00{n}"), (500, f"2,00{n}"))
        ]
    )
    readers = ReaderPool(1, MEMORY)
    source, processor = Source("gs://b/a.pdf", "1", content), LocalProcessor(readers)
    try:
        assert (await processor.classify(source)).doc_type == "other"
        assert (await processor.extract(source, "other")).items == []
        assert (await processor.extract(source, "balance_sheet")).summary["line_items"] == 8
    finally:
        await readers.close()


@pytest.mark.parametrize(
    "job",
    [
        {"do": "read", "doc_type": None},
        {"do": "text"},
        {"do": "picture", "number": 0, "width": 1200},
        {"do": "split", "max_pages": 15, "max_bytes": 1000},
    ],
    ids=["read", "text", "picture", "split"],
)
def test_a_small_document_cannot_take_much_memory(tmp_path: Path, job: dict[str, Any]) -> None:
    """Without a limit it takes hundreds of megabytes, or gigabytes."""
    content = tree_bomb(300) if job["do"] == "split" else page_bomb(300)
    assert len(content) < 4000
    (tmp_path / "bomb.pdf").write_bytes(content)
    program = f"""
import asyncio, resource, pathlib
from esclusa import Permanent
from esclusa.pipelines.documents.local.page_split import DocumentPart, split
from esclusa.pipelines.documents.local.reader_pool import ReaderPool

async def main():
    readers = ReaderPool(1, 200)
    try:
        await readers.request({job!r}, pathlib.Path("bomb.pdf").read_bytes())
    except Permanent as error:
        print(error.type, "|", error, "|", end=" ")
    await readers.close()

asyncio.run(main())
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    error, message, megabytes = done.stdout.split(" | ")
    assert error == "out_of_memory"
    assert message.startswith("reading it takes more than 200 MB of memory")
    assert "DOCUMENTS_LOCAL_MEMORY_MB" in message
    assert int(megabytes) < 300


async def test_a_used_process_is_replaced_before_a_document_is_refused() -> None:
    """What earlier documents left in memory is not held against a document."""
    readers, good = ReaderPool(1, MEMORY), pdf([(72, 700, 10, "Hola")])
    assert (await readers.read(good))["pages"] == 1
    reader = readers._free._queue[0]  # type: ignore[attr-defined]
    resource.prlimit(reader._process.pid, resource.RLIMIT_DATA, (1 << 20, 1 << 20))  # used up
    assert (await readers.read(page_bomb(5)))["pages"] == 1
    await readers.close()


async def test_rendering_times_out_and_kills_the_process() -> None:
    readers = ReaderPool(1, MEMORY)
    viewer, page = DocumentViewer(readers), pdf([(72, 700, 10, "Hola")])
    assert (await viewer.text(page)).startswith(b"Hola")
    viewer._seconds = 0.0
    with pytest.raises(Failure, match="within 0 s"):
        await viewer.picture(page, 0, 200)
    await readers.close()


async def test_dead_reader_is_a_failure_and_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readers = ReaderPool(1, MEMORY)
    good = pdf([(72, 700, 10, "Hola")])
    assert (await readers.read(good))["doc_type"] == "other"
    reader = readers._free._queue[0]  # type: ignore[attr-defined]
    reader._process.kill()
    with pytest.raises(Failure, match=r"died \(Killed\)"):
        await readers.read(good)
    task = asyncio.create_task(readers.read(good))
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (await readers.read(good))["pages"] == 1
    await readers.close()


def test_document_is_split_into_calls() -> None:
    long = statements.make(
        "l", statements.Style(rows=300, per_page=8), Random(1), statement_words.TUNED
    ).content
    pages = len(pdf_words.read_pdf(long).pages)
    assert pages > 30
    calls, shown = split(long, 15, 1 << 30)
    assert len(shown) == pages
    assert [page for call in calls for page in call.pages] == list(range(1, pages + 1))
    assert all(len(call.pages) <= 15 and not call.content for call in calls)
    small, _ = split(long, 15, len(long) // 3)
    assert all(0 < len(part.content) <= len(long) // 3 and not part.pages for part in small)
    assert [part.first_page for part in small] == sorted(part.first_page for part in small)
    assert sum(len(pdf_words.read_pdf(part.content).pages) for part in small) == pages
    assert split(b"no pdf", 15, 100) == ([DocumentPart()], [])
    with pytest.raises(pdf_words.Unreadable, match="too many for one call"):
        split(b"no pdf", 15, 5)


def test_document_with_several_statements_and_account_codes() -> None:
    top = [
        (60.0, 740.0, 11.0, "Comercial Andina SpA"),
        (60.0, 724.0, 11.0, "Balance General"),
        (60.0, 708.0, 9.0, "Al 30 de junio de 2024 y 31 de diciembre de 2023"),
    ]
    rows = [
        ("1101", "Caja", "1.200", "900"),
        ("1102", "Banco", "33.400", "12.000"),
        ("1103", "Clientes", "5.000", "(4.000)"),
    ]
    texts = [*top, (400.0, 690.0, 9.0, "2024"), (500.0, 690.0, 9.0, "2023")]
    for n, (code, label, first, second) in enumerate(rows):
        y = 670.0 - 14 * n
        texts += [
            (60.0, y, 9.0, code),
            (100.0, y, 9.0, label),
            (390.0, y, 9.0, first),
            (490.0, y, 9.0, second),
        ]
    found = [i for i in read_document(pdf(texts))["items"] if i["type"] == "LINE_ITEM_VALUE"]
    assert [(i["LINE_ITEM_NAME"], i["REPORTING_PERIOD"], i["value"]) for i in found] == [
        ("Caja", "2024-06-30", "1200"),
        ("Caja", "2023-12-31", "900"),
        ("Banco", "2024-06-30", "33400"),
        ("Banco", "2023-12-31", "12000"),
        ("Clientes", "2024-06-30", "5000"),
        ("Clientes", "2023-12-31", "-4000"),
    ]


def test_number_like_a_year_is_a_value_without_thousands_marks() -> None:
    texts = [
        (60.0, 740.0, 11.0, "Agrícola Sol Ltda."),
        (60.0, 724.0, 11.0, "Balance general al 31 de diciembre de 2024"),
        (480.0, 700.0, 9.0, "2024"),
    ]
    for n, (label, value) in enumerate(
        [("Caja", "120000"), ("Bancos", "3340"), ("Clientes", "860"), ("Capital", "2010")]
    ):
        texts += [(60.0, 680.0 - 14 * n, 9.0, label), (475.0, 680.0 - 14 * n, 9.0, value)]
    found = [i for i in read_document(pdf(texts))["items"] if i["type"] == "LINE_ITEM_VALUE"]
    assert [(i["LINE_ITEM_NAME"], i["value"]) for i in found] == [
        ("Caja", "120000"),
        ("Bancos", "3340"),
        ("Clientes", "860"),
        ("Capital", "2010"),
    ]


@pytest.mark.parametrize(
    ("text", "year", "ends"),
    [
        ("1T24", 2024, "2024-03-31"),
        ("3Q 2023", 2023, "2023-09-30"),
        ("4T-22", 2022, "2022-12-31"),
        ("1S24", 2024, "2024-06-30"),
        ("H2 2023", 2023, "2023-12-31"),
        ("9M24", 2024, "2024-09-30"),
        ("2do semestre de 2024", 2024, "2024-12-31"),
        ("Trim. III 2024", 2024, "2024-09-30"),
        ("Semestre I de 2024", 2024, "2024-06-30"),
        ("Sep 30 '24", 2024, "2024-09-30"),
        ("01/01 - 30/09/2024", 2024, "2024-09-30"),
    ],
)
def test_parts_of_years(text: str, year: int, ends: str) -> None:
    assert [(p.year, p.ends and p.ends.isoformat()) for p in periods(text)] == [(year, ends)]


@pytest.mark.parametrize(
    ("unit", "org", "currency"),
    [
        ("(Miles de pesos)", "Grupo Norteño, S.A.B. de C.V.", "MXN"),
        ("(Cifras en pesos)", "Cafetera Andina S.A.S. NIT 900.1", "COP"),
        ("(Miles de pesos)", "Comercial Sur SpA", "CLP"),
        ("(in CHF thousands)", "Alpenmilch AG", "CHF"),
        ("(in $ thousands)", "Acme, Inc.", "USD"),
    ],
)
def test_other_lines_decide_which_pesos(unit: str, org: str, currency: str) -> None:
    assert document_currency([org, unit, "Caja 1.234"], spanish="pesos" in unit) == currency


def test_parentheses_at_the_edge_of_a_column_and_footnote_marks() -> None:
    texts = [
        (60.0, 740.0, 11.0, "Agrícola Sol Ltda."),
        (60.0, 724.0, 11.0, "Balance general"),
        (482.0, 700.0, 9.0, "2024"),
    ]
    for n, (label, value) in enumerate(
        [("Caja", "1.200*"), ("Bancos", "3.340"), ("Provisión", "860")]
    ):
        texts += [(60.0, 680.0 - 14 * n, 9.0, label), (475.0, 680.0 - 14 * n, 9.0, value)]
    texts += [(420.0, 652.0, 9.0, "("), (492.0, 652.0, 9.0, ")")]
    found = [i for i in read_document(pdf(texts))["items"] if i["type"] == "LINE_ITEM_VALUE"]
    assert [(i["LINE_ITEM_NAME"], i["LINE_ITEM_VALUE"], i["value"]) for i in found] == [
        ("Caja", "1.200", "1200"),
        ("Bancos", "3.340", "3340"),
        ("Provisión", "( 860 )", "-860"),
    ]


def test_document_with_too_many_pages_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = statements.make(
        "l", statements.Style(rows=60, per_page=20), Random(1), statement_words.TUNED
    ).content
    assert read_document(made)["pages"] > 2
    monkeypatch.setattr(pdf_words, "MAX_PAGES", 2)
    with pytest.raises(pdf_words.Unreadable) as caught:
        read_document(made)
    assert caught.value.error == "too_many_pages"


def test_table_of_contents_and_dates_in_prose_are_ignored() -> None:
    def page(texts: list[tuple[float, float, float, str]]) -> bytes:
        return pdf([(60.0, 760.0, 11.0, "Comercial Sur SpA"), *texts])

    contents = [
        "Estado de Situación Financiera",
        "Estado de Resultados",
        "Estado de Flujos de Efectivo",
        "Notas a los estados financieros",
    ]
    index = [(60.0, 700.0 - 15 * n, 9.0, f"{title} {'.' * 30}") for n, title in enumerate(contents)]
    index += [(500.0, 700.0 - 15 * n, 9.0, str(3 + n)) for n in range(len(contents))]
    assert [i for i in read_document(page(index))["items"] if i["type"] == "LINE_ITEM_VALUE"] == []
    texts = [
        (60.0, 740.0, 9.0, "Balance General"),
        (60.0, 725.0, 9.0, "Al 31 de diciembre de 2024 y 2023"),
        (
            60.0,
            710.0,
            9.0,
            (
                "El directorio se reunió el 15 de marzo de 2025 y aprobó repartir 30% de las "
                "utilidades."
            ),
        ),
        (482.0, 680.0, 9.0, "2024"),
        (552.0, 680.0, 9.0, "2023"),
    ]
    for n, label in enumerate(["Caja", "Bancos", "Clientes"]):
        texts += [
            (60.0, 660.0 - 14 * n, 9.0, label),
            (478.0, 660.0 - 14 * n, 9.0, "1.200"),
            (548.0, 660.0 - 14 * n, 9.0, "3.400"),
        ]
    found = [i for i in read_document(page(texts))["items"] if i["type"] == "LINE_ITEM_VALUE"]
    assert [i["REPORTING_PERIOD"] for i in found] == ["2024-12-31", "2023-12-31"] * 3
