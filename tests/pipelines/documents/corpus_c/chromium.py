"""Tables as HTML, printed by Chromium, with the positions of their numbers."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from random import Random
from string import Template
from typing import Any

import pypdfium2 as pdfium
from pipelines.documents.corpus_c.figures import (
    Box,
    Column,
    Numerals,
    Row,
    percent,
    stamped,
    truth,
    words,
)
from pipelines.documents.drawing import Statement
from playwright.sync_api import Page, sync_playwright

_pages: list[Page] = []


class Unclear(ValueError):
    """A number occurs more than once on the page."""


@contextmanager
def press() -> Iterator[Page]:
    """A page of the one Chromium that is open during printing."""
    if _pages:
        yield _pages[0]
        return
    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        _pages.append(browser.new_page())
        try:
            yield _pages[0]
        finally:
            _pages.clear()
            browser.close()


def filled(rng: Random, name: str, **fields: object) -> str:
    """Return a page of the word list with one choice of each bracket and its fields filled in.

    `opinion` is inserted into another page.
    """
    lines = (() if name == "opinion" else words("page.base")) + words(f"page.{name}")
    text = "\n".join(lines).replace("[[people]]", f"[[{'|'.join(words('people'))}]]")
    text = re.sub(r"\[\[(.*?)\]\]", lambda found: rng.choice(found[1].split("|")), text)
    return Template(text).substitute(fields, hue=rng.randint(0, 359))


def footer(which: int, org: str) -> dict[str, Any]:
    """Return Chromium's options for a line with the page number below every page."""
    text = Template(words("footers")[which]).safe_substitute(org=org)
    return {
        "display_header_footer": True,
        "header_template": "<span></span>",
        "footer_template": text,
    }


def table(
    body: list[Row],
    columns: list[Column],
    numerals: Numerals,
    *,
    note: str = "",
    corner: str = "",
    groups: str = "",
    sign: str = "",
) -> str:
    """Return the table: headings, then a row per line.

    A sign has a cell of its own before the first and the grand totals.
    """
    html, signed = (
        f'<table><thead>{groups}<tr><th class="corner">{corner}</th>'
        + f'<th class="note">{note}</th>' * bool(note),
        True,
    )
    for i, column in enumerate(columns):
        text, span = (
            escape(column.head).replace("\n", "<br>"),
            2 if sign and column.kind != "percent" else 1,
        )
        html += f'<th class="head {column.kind} c{i}" colspan="{span}">{text}</th>'
    html += "</tr></thead>"
    for row in body:
        html += (
            f'<tr class="{row.kind}{" grand" * row.grand}"><td class="label '
            f'l{row.level}">{escape(row.label)}</td>'
        )
        html += f'<td class="note">{row.note}</td>' * bool(note)
        for i, column in enumerate(columns):
            if column.kind == "percent":
                has_change = row.amounts and row.decimals is None
                share = percent(row, column, numerals) if has_change else ""
                html += f'<td class="percent">{share}</td>'
                continue
            shown = (
                numerals.shown(row.amounts[i], row.decimals).replace(" ", "\u00a0")
                if row.amounts
                else ""
            )
            if sign:
                html += (
                    f'<td class="sign">{sign if row.amounts and (signed or row.grand) else ""}</td>'
                )
            html += f'<td class="value c{i}">{shown}</td>'
        signed = signed and not row.amounts
        html += "</tr>"
    return f"{html}</table>"


def located(content: bytes, texts: list[str]) -> list[tuple[int, Box]]:
    """Return page and box of each text, given in reading order.

    A text that occurs more than once must be alone between its neighbours.
    """
    document = pdfium.PdfDocument(content)
    flow, pages = "", []
    for page in document:
        text = page.get_textpage()
        pages.append((len(flow), page, text))
        flow += "".join(
            chr(pdfium.raw.FPDFText_GetUnicode(text, i)) for i in range(text.count_chars())
        )
    spans: list[list[tuple[int, int]]] = []
    for wanted in texts:
        pattern = "".join(
            r"\s" if c.isspace() else r"[-\x02\xad]" if c == "-" else re.escape(c) for c in wanted
        )
        spans.append(
            [m.span() for m in re.finditer(rf"(?<![\w.,'(−-]){pattern}(?![\w.,')%])", flow)]
        )
    out = []
    for at, wanted in enumerate(texts):
        found = spans[at]
        if len(found) != 1:
            low = max((s[0][1] for s in spans[:at] if len(s) == 1), default=0)
            high = min((s[0][0] for s in spans[at + 1 :] if len(s) == 1), default=len(flow))
            found = [s for s in found if low <= s[0] and s[1] <= high]
        if len(found) != 1:
            raise Unclear(f"{wanted} comes {len(found)} times")
        spans[at] = found
        number, (offset, page, text) = max(
            (n, p) for n, p in enumerate(pages) if p[0] <= found[0][0]
        )
        boxes = [
            text.get_charbox(i - offset, loose=True)
            for i in range(*found[0])
            if not flow[i].isspace()
        ]
        wide, high = page.get_size()
        x0, y0, x1, y1 = (f(b[k] for b in boxes) for k, f in enumerate((min, min, max, max)))
        out.append((number, (x0 / wide, 1 - y1 / high, x1 / wide, 1 - y0 / high)))
    document.close()
    return out


def statement(
    kind: str,
    html: str,
    body: list[Row],
    columns: list[Column],
    numerals: Numerals,
    about: tuple[str, str, str, int],
    **options: Any,
) -> Statement:
    """Return the printed document with its values, without a name.

    `about`: organisation, title, currency, scale.
    """
    with press() as page:
        page.set_content(html)
        content = stamped(page.pdf(prefer_css_page_size=True, print_background=True, **options))
    cells = [
        (row, i)
        for row in body
        for i, amount in enumerate(row.amounts)
        if amount and columns[i].kind != "percent"
    ]
    places = located(content, [numerals.shown(row.amounts[i], row.decimals) for row, i in cells])
    values = [
        truth(row, i, columns, numerals, *place)
        for (row, i), place in zip(cells, places, strict=True)
    ]
    return Statement("", kind, content, values, *about)
