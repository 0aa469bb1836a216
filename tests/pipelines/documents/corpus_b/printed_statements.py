"""Statements in HTML, printed by Chromium, of five origins."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pypdfium2 as pdfium
from pipelines.documents.corpus_b.model import (
    Column,
    Numbers,
    Row,
    build,
    ends,
    head,
    spoken_date,
    templates,
    yearly,
)
from pipelines.documents.corpus_b.organisations import COUNTRIES, random_organisation, units
from pipelines.documents.drawing import Statement, Truth
from playwright.sync_api import Page, sync_playwright
from pypdfium2 import raw
from web.console.browser import CHROMIUM

CSS = (Path(__file__).parent / "styles.css").read_text("utf-8")
FONTS = ("DejaVu Sans", "DejaVu Serif", "DejaVu Sans Condensed")


@contextmanager
def press() -> Iterator[Page]:
    """A page of one browser, on which a whole set is printed."""
    with sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser.new_page()
        browser.close()


def printed(
    page: Page,
    origin: str,
    body: str,
    css: str,
    paper: str = "A4",
    landscape: bool = False,
    foot: str = "",
) -> bytes:
    """Return the body as a PDF, in the style of the origin and styles of its own."""
    page.set_content(
        f"<!doctype html><meta charset='utf-8'><style>{CSS}{css}</style><body "
        f"class='{origin}'>{body}</body>"
    )
    extra = (
        {"display_header_footer": True, "header_template": "<span></span>", "footer_template": foot}
        if foot
        else {}
    )
    return page.pdf(
        format=paper,
        landscape=landscape,
        print_background=True,
        prefer_css_page_size=False,
        **extra,
    )  # type: ignore[arg-type]


def esc(text: str) -> str:
    return html.escape(text, quote=False)


class Table:
    """Rows as an HTML table, with the order in which its texts are printed."""

    def __init__(
        self,
        rows: list[Row],
        columns: list[Column],
        *,
        notes: str = "",
        codes: str = "",
        sign: str = "",
        first: str = "",
    ) -> None:
        self.rows, self.columns, self.notes, self.codes, self.sign, self.first = (
            rows,
            columns,
            notes,
            codes,
            sign,
            first,
        )

    def html(self, heads: str = "", name: str = "") -> str:
        span = 1 + bool(self.notes) + bool(self.codes) + len(self.columns) * (1 + bool(self.sign))
        head = (
            heads
            or "<tr>"
            + self._lead()
            + "".join(self._th(c.head, "n") for c in self.columns)
            + "</tr>"
        )
        body, fresh = "", True
        for row in self.rows:
            if row.kind == "section":
                code = "<td></td>" if self.codes else ""
                body += (
                    f"<tr class='section l{row.level}'>{code}<td "
                    f"colspan={span - bool(self.codes)}>{esc(row.label)}</td></tr>"
                )
                continue
            marked = bool(self.sign) and (fresh or (row.kind == "total" and row.level == 0))
            cells = "".join(
                (f"<td class=s>{esc(self.sign) if marked else ''}</td>" if self.sign else "")
                + f"<td class=n>{esc(c.text)}</td>"
                for c in row.cells
            )
            code = f"<td class=c>{row.code}</td>" if self.codes else ""
            note = f"<td class=c>{esc(row.note)}</td>" if self.notes else ""
            body += (
                f"<tr class='{row.kind} l{row.level}'>{code}<td "
                f"class=t>{esc(row.label)}</td>{note}{cells}</tr>"
            )
            row.marked, fresh = marked, False
        return f"<table class='{name}'><thead>{head}</thead><tbody>{body}</tbody></table>"

    def _lead(self) -> str:
        code = f"<th>{esc(self.codes)}</th>" if self.codes else ""
        return (
            code
            + f"<th style='text-align:left'>{esc(self.first)}</th>"
            + (f"<th>{esc(self.notes)}</th>" if self.notes else "")
        )

    def _th(self, text: str, kind: str) -> str:
        return (
            f"<th class={kind} "
            f"colspan={1 + bool(self.sign)}>{'<br>'.join(esc(t) for t in text.split(chr(10)))}</th>"
        )

    def grouped(self) -> str:
        """Return two rows of headings: the groups and their columns."""
        groups: list[tuple[str, int]] = []
        for column in self.columns:
            if groups and groups[-1][0] == column.group:
                groups[-1] = (column.group, groups[-1][1] + 1)
            else:
                groups.append((column.group, 1))
        blank = "<th></th>" * (1 + bool(self.notes) + bool(self.codes))
        over = "".join(
            f"<th class=g colspan={n * (1 + bool(self.sign))}>{esc(g)}</th>" for g, n in groups
        )
        return (
            f"<tr>{blank}{over}</tr><tr>{self._lead()}"
            + "".join(self._th(c.head, "n") for c in self.columns)
            + "</tr>"
        )


def _plain(text: str) -> str:
    """Return the text without spaces, and with unified hyphens and ligatures."""
    text = unicodedata.normalize(
        "NFKC", text.replace("\ufffe", "-").replace("\x02", "-").replace("\u2212", "-")
    )
    return "".join(c for c in text if not c.isspace() and c not in "\xad\x00")


def stream(content: bytes) -> tuple[str, list[tuple[int, tuple[float, float, float, float]]]]:
    """Return the text of a PDF without spaces, and page and displayed box of each character."""
    text, where = [], []
    document = pdfium.PdfDocument(content)
    for number, page in enumerate(document):
        turn, (wide, high) = page.get_rotation(), page.get_size()
        if turn in (90, 270):
            wide, high = high, wide
        layer = page.get_textpage()
        for at in range(layer.count_chars()):
            for char in _plain(chr(raw.FPDFText_GetUnicode(layer.raw, at))):
                x0, y0, x1, y1 = layer.get_charbox(at, loose=True)
                box = (x0 / wide, 1 - y1 / high, x1 / wide, 1 - y0 / high)
                if turn == 90:
                    box = (1 - box[3], box[0], 1 - box[1], box[2])
                elif turn == 270:
                    box = (box[1], 1 - box[2], box[3], 1 - box[0])
                text.append(char)
                where.append((number, box))
    document.close()
    return "".join(text), where


def found(content: bytes, tables: list[Table]) -> list[Truth]:
    """Return the values of the tables of a PDF; each row is searched after the one before."""
    text, where = stream(content)
    values, cursor = [], 0
    for table in tables:
        for row in table.rows:
            pieces = [row.code if table.codes else "", row.label, row.note if table.notes else ""]
            spots: list[int | None] = [None] * len(pieces)
            for at, cell in enumerate(row.cells):
                if table.sign:
                    pieces.append(table.sign if row.marked else "")
                    spots.append(None)
                pieces.append(cell.text)
                spots.append(at)
            plain = [_plain(p) for p in pieces]
            start = text.find("".join(plain), cursor)
            if start < 0:
                raise LookupError(
                    f"not printed as expected: {pieces} in …{text[cursor : cursor + 200]}"
                )
            for piece, spot in zip(plain, spots, strict=True):
                if spot is not None and row.cells[spot].value is not None:
                    column, boxes = (
                        table.columns[spot],
                        [b for _, b in where[start : start + len(piece)]],
                    )
                    box = (
                        min(b[0] for b in boxes),
                        min(b[1] for b in boxes),
                        max(b[2] for b in boxes),
                        max(b[3] for b in boxes),
                    )
                    cell = row.cells[spot]
                    args = (
                        row.label,
                        column.year,
                        column.period,
                        cell.value or "",
                        cell.printed,
                        where[start][0],
                        box,
                        row.section,
                    )
                    values.append(Truth(*args, row.total))
                start += len(piece)
            cursor = start
    return values


def foot(text: str, pages: bool = True) -> str:
    number = "<span class=pageNumber></span> / <span class=totalPages></span>" if pages else ""
    style = (
        "font: 7px 'DejaVu Sans'; width: 100%; margin: 0 15mm; display: flex; justify-content: "
        "space-between"
    )
    return f'<div style="{style}"><span>{esc(text)}</span><span>{number}</span></div>'


def planilla(rng: Random, page: Page) -> Statement:
    """A spreadsheet printed by a small company's accountant."""
    template = rng.choice(templates("planilla"))
    org, key = random_organisation(rng, "planilla")
    country, year, count = COUNTRIES[key], rng.randint(2017, 2025), rng.choice((1, 2, 2, 3, 5))
    columns = yearly("es", rng.choice(("mon", "anio", "year", "dmy")), year, count)
    if count == 2:
        columns += [Column("Variación", kind="change"), Column("Var. %", kind="percent")][
            : rng.choice((0, 1, 2))
        ]
    numbers = Numbers(
        country.thousands,
        rng.choice((0, 0, 2)),
        rng.choice(("minus", "parens")),
        rng.choice(("-", "0", "")),
    )
    rows = build(rng, template, columns, numbers, base=10 ** rng.uniform(4.5, 6.3), notes=" ")
    unit = units(rng, country, 1)
    when = (
        f"al {spoken_date('es', year, 12)}"
        if template.doc_type == "balance_sheet"
        else f"1 de enero al {spoken_date('es', year, 12)}"
    )
    when = when if rng.random() < 0.7 else ""
    table = Table(rows, columns, first=rng.choice(("", "Concepto", "Detalle")))
    grid = rng.choice(("#bbb", "#000", "#d8d8d8"))
    tint = rng.choice(("#ffe699", "#c6e0b4", "#d9e1f2", "#fff"))
    css = f"body {{ --grid: {grid}; --tint: {tint} }}"
    css += rng.choice(
        (
            "tr:nth-child(even).line td { background: #f3f3f3 }",
            "",
            "tr.line td.t { padding-left: 16px }",
        )
    )
    body = (
        f"<p><b>{esc(org)}</b></p><p>{country.tax} – {country.city}</p>"
        f"<h2>{esc(template.title)}</h2>"
    )
    body += f"<p class=when>{when}</p><p class=when>{esc(unit)}</p><br>{table.html()}"
    if rng.random() < 0.5:
        body += "<p style='margin-top:40px'>Preparado por: Claudia Mena R., contadora</p>"
    content = printed(
        page,
        "planilla",
        body,
        css,
        rng.choice(("Letter", "A4")),
        count == 5 or rng.random() < 0.25,
        foot("Hoja1") if rng.random() < 0.6 else "",
    )
    return Statement(
        "planilla",
        template.doc_type,
        content,
        found(content, [table]),
        org,
        template.title,
        country.currency,
        1,
    )


def municipio(rng: Random, page: Page) -> Statement:
    """A municipality's public accounts in a prescribed format."""
    template = rng.choice(templates("municipio"))
    org, key = random_organisation(rng, "municipio")
    country = COUNTRIES[key]
    year, month = rng.randint(2018, 2025), rng.choice((12, 12, 6, 9))
    style = (
        rng.choice(("year", "long", "dmy", "monyear"))
        if month == 12
        else rng.choice(("long", "dmy", "monyear"))
    )
    columns = yearly("es", style, year, 2, month)
    cents = country.thousands != "." and rng.random() < 0.5
    numbers = Numbers(
        country.thousands,
        2 if cents else 0,
        rng.choice(("minus", "parens", "true")),
        rng.choice(("0", "-")),
    )
    notes = rng.choice((" ", " ", "ESF-"))
    rows = build(rng, template, columns, numbers, base=10 ** rng.uniform(4, 6.3), notes=notes)
    scale = rng.choice((1, 1, 1000)) if not cents else 1
    table = Table(rows, columns, notes="Nota" if notes != " " else "", first="Concepto")
    dark = rng.choice(("#7b1e3b", "#1f4e79", "#4b6b3c"))
    css = f"body {{ --ink: {dark} }}"
    css += rng.choice(("", "", "body { --pad: 7px }", "table { width: 68%; margin: auto }"))
    when = f"Al {spoken_date('es', year, month)}"
    if template.doc_type != "balance_sheet":
        when = f"Del 1 de enero al {spoken_date('es', year, month)}"
    when += f" y {year - 1}" if rng.random() < 0.7 else ""
    body = (
        f"<header><h2>{org}</h2><h2>{template.title}</h2><p>{when}</p>"
        f"<p>{esc(units(rng, country, scale))}</p></header>{table.html()}"
    )
    body += (
        "<p class=oath>Bajo protesta de decir verdad declaramos que los Estados Financieros "
        "y sus notas son razonablemente correctos y son "
        "responsabilidad del emisor.</p><div class=signed><p>Lic. Rosalba Tun "
        "Ek<br>Presidencia Municipal</p>"
        "<p>C.P. Elías Roca<br>Tesorería</p></div>"
    )
    content = printed(
        page, "municipio", body, css, "Letter", rng.random() < 0.4, foot(f"Cuenta Pública {year}")
    )
    return Statement(
        "municipio",
        template.doc_type,
        content,
        found(content, [table]),
        org,
        template.title,
        country.currency,
        scale,
    )


def fundacion(rng: Random, page: Page) -> Statement:
    """A foundation's designed annual report: prose, then tables without rules.

    A balance has a table for each part.
    """
    template = rng.choice(templates("fundacion"))
    org, key = random_organisation(rng, "fundacion")
    country, year = COUNTRIES[key], rng.randint(2018, 2025)
    count = rng.choice((1, 2, 2, 3))
    columns = yearly("es", rng.choice(("year", "ejercicio", "anio")), year, count)
    scale = 1_000 if country.currency != "COP" else rng.choice((1_000, 1_000_000))
    thousands = "\u202f" if country.currency == "EUR" and rng.random() < 0.4 else country.thousands
    numbers = Numbers(
        thousands,
        rng.choice((0, 0, 1)),
        rng.choice(("true", "parens", "minus")),
        rng.choice(("–", "—", "-")),
    )
    rows = build(
        rng, template, columns, numbers, base=10 ** rng.uniform(1.8, 3.5), notes=" ", drop=0.1
    )
    unit, hue = units(rng, country, scale), rng.randrange(0, 360, 30)
    parts = [rows]
    if template.doc_type == "balance_sheet" and rng.random() < 0.6:
        cut = next(i for i, r in enumerate(rows) if r.label == "Lo que debemos")
        parts = [rows[:cut], rows[cut:]]
    tables = [Table(part, columns) for part in parts]
    css = f"body {{ --ink: hsl({hue} 60% 35%); font-family: '{rng.choice(FONTS)}' }}"
    css += rng.choice(
        (f"td:nth-child(2) {{ background: hsl({hue} 50% 93%) }}", "table { width: 78% }", "")
    )
    prose = (
        f"<h1>Memoria anual {year}</h1><p class=prose>Durante {year} acompañamos a más "
        f"familias que nunca. La confianza de quienes nos "
        "apoyan hizo posible sostener los programas y llegar a nuevas comunidades. "
        f"{esc(org)} rinde aquí cuentas de cada aporte recibido.</p>"
    )
    body = (
        prose + ("<div style='break-after:page'></div>" if rng.random() < 0.5 else "<br>")
        if rng.random() < 0.7
        else ""
    )
    body += f"<p>{esc(org)}</p><h1>{esc(template.title)}</h1>"
    close = (
        f"A 31 de diciembre de {year}"
        if template.doc_type == "balance_sheet"
        else f"Año terminado el 31 de diciembre de {year}"
    )
    body += f"<p>{close}. {esc(unit)}</p><br>" + "".join(t.html() for t in tables)
    content = printed(
        page,
        "fundacion",
        body,
        css,
        "A4",
        False,
        foot(f"{org} · Memoria {year}") if rng.random() < 0.7 else "",
    )
    return Statement(
        "fundacion",
        template.doc_type,
        content,
        found(content, tables),
        org,
        template.title,
        country.currency,
        scale,
    )


def interim(rng: Random, page: Page) -> Statement:
    """A listed group's interim report with three- and nine-month (or six-month) columns."""
    template, (org, key) = rng.choice(templates("interim")), random_organisation(rng, "interim")
    money, sign, thousands = {
        "gb": ("GBP", "£", ","),
        "ch": ("CHF", "CHF", "’"),
        "us": ("USD", "US$", ","),
    }[key]
    year, month = rng.randint(2018, 2025), rng.choice((9, 9, 6))
    spans = (
        (("Three", 1.0), ("Nine" if month == 9 else "Six", month / 3))
        if rng.random() < 0.7
        else (("Nine" if month == 9 else "Six", month / 3),)
    )
    end = f"30 {'September' if month == 9 else 'June'}"
    scale, label = rng.choice(
        (
            (1_000_000, f"{sign}{' ' * (key == 'ch')}m"),
            (1_000_000, f"{sign} million"),
            (1_000, f"{sign}{' ' * (key == 'ch')}000"),
            (1_000, f"{sign} thousand"),
        )
    )
    unit_in_heads = rng.random() < 0.5
    columns = [
        Column(
            f"{y}\n{label}" if unit_in_heads else f"{y}",
            y,
            ends(y, month),
            group=f"{name} months ended {end}",
            factor=factor,
        )
        for name, factor in spans
        for y in (year, year - 1)
    ]
    if len(spans) == 1:
        full = year - 1
        columns.append(
            Column(
                f"{full}\n{label}" if unit_in_heads else f"{full}",
                full,
                ends(full, 12),
                group="Year ended 31 December",
                factor=4.0,
            )
        )
    numbers = Numbers(
        thousands,
        1 if scale > 1000 else 0,
        rng.choice(("parens", "true", "parens")),
        rng.choice(("–", "—", "-")),
    )
    base = 10 ** rng.uniform(0.7, 1.8) * (1 if scale > 1000 else 1000)
    rows = build(rng, template, columns, numbers, base=base, notes=rng.choice((" ", "")))
    table = Table(rows, columns, notes="Note" if any(r.note for r in rows) else "")
    css = f"body {{ font-family: '{rng.choice(FONTS)}' }}"
    css += rng.choice(
        ("tr.line td { border-bottom: 0.3px solid #ddd }", "", "td { padding: 7px 5px }")
    )
    audit = rng.choice(("(unaudited)", "– unaudited"))
    body = f"<p>{esc(org)}</p><p>Interim report {year}</p><h1>{template.title}</h1>"
    body += f"<p>for the {spans[-1][0].lower()} months ended {end} {year} {audit}</p>"
    body += "" if unit_in_heads else f"<p>In {label} unless otherwise stated</p>"
    body += "<br>" + table.html(table.grouped())
    body += (
        "<p class=small>The notes form an integral part of these condensed consolidated interim "
        "financial statements.</p>"
    )
    content = printed(
        page, "interim", body, css, "A4", rng.random() < 0.3, foot(f"{org} – Interim report {year}")
    )
    return Statement(
        "interim",
        template.doc_type,
        content,
        found(content, [table]),
        org,
        template.title,
        money,
        scale,
    )


def boardpack(rng: Random, page: Page) -> Statement:
    """A start-up's board slides: quarters and the full year, or a few fiscal years."""
    template, (org, key) = rng.choice(templates("boardpack")), random_organisation(rng, "boardpack")
    sign, money = ("$", "USD") if key == "us" else ("£", "GBP")
    year = rng.randint(2020, 2025)
    style = rng.choice(("Q{q} {y}", "Q{q} FY{s}", "Q{q}’{s}"))
    quarters = [
        Column(style.format(q=q, y=year, s=f"{year % 100:02}"), year, ends(year, 3 * q))
        for q in (1, 2, 3, 4)
    ]
    if rng.random() < 0.65:
        columns = quarters
        if template.doc_type == "income_statement":
            columns = [
                *quarters,
                Column(head("fy", "en", year, 12), year, ends(year, 12), sum_of=(0, 1, 2, 3)),
            ]
    else:
        columns = yearly("en", rng.choice(("fy", "monyear")), year, rng.choice((2, 3)))[::-1]
    scale, unit = rng.choice(
        (
            (1_000, f"{sign}000"),
            (1_000, f"{sign} thousands"),
            (1, "US dollars" if money == "USD" else "Pounds sterling"),
        )
    )
    numbers = Numbers(",", 0, rng.choice(("parens", "minus")), rng.choice(("-", "–", "0")))
    rows = build(
        rng,
        template,
        columns,
        numbers,
        base=10 ** rng.uniform(1.5, 2.5) * (1 if scale > 1 else 1000),
        notes=" ",
    )
    table = Table(
        rows,
        columns,
        sign=sign if scale == 1 and rng.random() < 0.5 else "",
        first=unit if rng.random() < 0.5 else "",
    )
    hue = rng.choice((160, 210, 265, 15))
    css = f"body {{ --ink: hsl({hue} 45% 25%); --tint: hsl({hue} 45% 93%) }}"
    css += rng.choice(
        ("tr.line:nth-child(odd) td { background: #f6f6f6 }", "td.t { width: 45% }", "")
    )
    what = "" if table.first else f"<p>All figures in {unit}</p>"
    when = f"{rng.choice(('14 February', '3 March'))} {year + 1}"
    body = (
        f"<p class=top>{esc(org)} · Board meeting · {when} · "
        f"Confidential</p><h1>{esc(template.title)}</h1>"
    )
    body += f"{what}<br>{table.html()}"
    if rng.random() < 0.6:
        body += (
            "<ul><li>Enterprise renewals came in ahead of plan.</li><li>Hiring freeze in "
            "engineering kept burn in check.</li></ul>"
        )
    content = printed(
        page,
        "boardpack",
        body,
        css,
        "Letter",
        True,
        foot(f"{org} board pack") if rng.random() < 0.6 else "",
    )
    return Statement(
        "boardpack",
        template.doc_type,
        content,
        found(content, [table]),
        org,
        template.title,
        money,
        scale,
    )
