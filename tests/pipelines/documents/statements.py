"""Make financial statements as PDFs, varied in language and layout, with the values printed.

Rules are developed with ``tuned`` styles. ``held_out`` styles have other words, layouts and seeds,
and are only measured. Seeds 1 to 3 of them were inspected to repair rules after a change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from pipelines.documents import statement_words
from pipelines.documents.drawing import Pen, Statement, Style, Truth
from pipelines.documents.months import ENGLISH, SPANISH


def amount(number: int, style: Style, rng: Random) -> tuple[str, str]:
    """Return the number as printed, and its value."""
    whole, cents = abs(number), rng.randrange(1, 100) if style.decimals else 0
    grouped = f"{whole:,}"
    mark, point = (style.thousands, "." if style.thousands in ",'’" else ",")
    grouped = grouped.replace(",", mark)
    printed = grouped + (f"{point}{cents:02d}" if style.decimals else "")
    value = f"{whole}.{cents:02d}" if style.decimals else str(whole)
    if number < 0:
        printed = {
            "parens": f"({printed})",
            "minus": f"-{printed}",
            "spaced": f"( {printed} )",
            "after": f"{printed}-",
        }[style.negative]
        value = f"-{value}"
    return printed, value


def heading(style: Style, year: int) -> list[str]:
    """Return the heading of a year's column, line by line."""
    month, es = style.month, style.lang == "es"
    day = {2: 28, 4: 30, 6: 30, 9: 30, 11: 30}.get(month, 31)
    word = (SPANISH if es else ENGLISH)[month - 1]
    short = word[:3].capitalize()
    unit = {
        "CLP": {1: "$", 1000: "M$", 1000000: "MM$"},
        "USD": {1: "US$", 1000: "MUS$" if es else "US$ '000", 1000000: "MMUS$" if es else "US$ m"},
    }
    lines = {
        "year": [str(year)],
        "dmy": [f"{day:02d}-{month:02d}-{year}"],
        "slash": [f"{day:02d}/{month:02d}/{year}"],
        "dots": [f"{day:02d}.{month:02d}.{year}"],
        "short": [f"{short}-{year % 100:02d}"],
        "shortyear": [f"{short} {year}"],
        "long": [f"{day} de {word}", f"de {year}"] if es else [f"{word} {day},", str(year)],
        "longline": [f"{day} de {word} de {year}"] if es else [f"{word} {day}, {year}"],
        "range": [f"01-01-{year}", f"{day:02d}-{month:02d}-{year}"],
        "fy": [f"FY{year}"] if not es else [f"Año {year}"],
        "named": [f"{'Real' if es else 'Actual'} {year}"],
        "unit": [f"{year} {unit.get(style.currency, {}).get(style.scale, style.currency)}"],
        "span": [str(year)],
    }[style.heads]
    if style.units == "head":
        lines = [*lines, unit.get(style.currency, {}).get(style.scale, style.currency)]
    return lines


def ends(style: Style, year: int) -> str:
    day = {2: 28, 4: 30, 6: 30, 9: 30, 11: 30}.get(style.month, 31)
    return f"{year}-{style.month:02d}-{day:02d}"


def titles(style: Style, org: str, title: str) -> list[str]:
    day = {2: 28, 4: 30, 6: 30, 9: 30, 11: 30}.get(style.month, 31)
    es = style.lang == "es"
    word = (SPANISH if es else ENGLISH)[style.month - 1]
    years = [str(y) for y in style.years]
    listed = ", ".join(years[:-1]) + (
        (" y " if es else " and ") + years[-1] if len(years) > 1 else years[-1]
    )
    flow = style.doc_type != "balance_sheet"
    if es:
        dated = f"{'Por los años terminados el' if flow else 'Al'} {day} de {word} de {listed}"
    else:
        dated = f"{'For the years ended' if flow else 'As of'} {word} {day}, {listed}"
    money = {
        "CLP": ("pesos chilenos", "Chilean pesos"),
        "USD": ("dólares estadounidenses", "U.S. dollars"),
        "EUR": ("euros", "euros"),
        "CHF": ("francos suizos", "Swiss francs"),
    }
    name = money[style.currency][0 if es else 1]
    scales = {
        1: ("(Expresado en {})", "(Expressed in {})"),
        1000: ("(Expresado en miles de {})", "(In thousands of {})"),
        1000000: ("(Cifras en millones de {})", "(Amounts in millions of {})"),
    }
    lines = [org, title, dated]
    if style.units == "title":
        lines.append(scales[style.scale][0 if es else 1].format(name))
    return lines


def make(name: str, style: Style, rng: Random, words: statement_words.Words) -> Statement:
    """Draw a statement."""
    pen = Pen(style)
    org, title = (
        rng.choice(words.orgs[style.lang]),
        rng.choice(words.titles[style.lang][style.doc_type]),
    )
    if style.case == "upper":
        title = title.upper()
    truths: list[Truth] = []
    content = statement_words.rows(words, style.lang, style.doc_type, style.rows, rng)
    lanes: list[tuple[float, float, list[Any]]]
    margin = 50.0 + style.crop
    if style.beside:
        cut = next(
            i for i, row in enumerate(content) if i >= len(content) // 2 and row.kind == "section"
        )
        half = pen.w / 2
        lanes = [(margin, half - 15, content[:cut]), (half + 15, pen.w - margin, content[cut:])]
    else:
        lanes = [(margin, pen.w - margin, content)]
    top = _titles(pen, style, org, title, rng)
    for left, right, part in lanes:
        _table(
            pen,
            style,
            rng,
            left,
            right,
            top,
            part,
            truths,
            lambda: _titles(pen, style, org, title, rng),
        )
    _foot(pen, style)
    return Statement(
        name, style.doc_type, pen.done(), truths, org, title, style.currency, style.scale
    )


def _titles(pen: Pen, style: Style, org: str, title: str, rng: Random) -> float:
    y = 50.0 + style.crop
    bold = {"Helvetica": "Helvetica-Bold", "Times-Roman": "Times-Bold", "Courier": "Courier-Bold"}[
        style.font
    ]
    for number, text in enumerate(titles(style, org, title)):
        pen.font(
            bold if number < 2 else style.font,
            style.size + (3 if number == 0 else 1 if number == 1 else 0),
        )
        x = (pen.w - pen.width(text)) / 2 if style.centered else 50.0 + style.crop
        pen.text(x, y, text)
        y += 1.6 * style.size
    return y + 1.5 * style.size


def _foot(pen: Pen, style: Style) -> None:
    pen.font(style.font, 7)
    text = (
        "Las notas adjuntas forman parte integral de estos estados financieros"
        if style.lang == "es"
        else "The accompanying notes are an integral part of these financial statements"
    )
    pen.text((pen.w - pen.width(text)) / 2, pen.h - 40 - style.crop, text)
    pen.text(pen.w - 60 - style.crop, pen.h - 28 - style.crop, str(pen.pages + 1))
    pen.font(style.font, style.size)


def _table(
    pen: Pen,
    style: Style,
    rng: Random,
    left: float,
    right: float,
    top: float,
    rows: list[Any],
    truths: list[Truth],
    retitle: Callable[[], float],
) -> None:
    bold = {"Helvetica": "Helvetica-Bold", "Times-Roman": "Times-Bold", "Courier": "Courier-Bold"}[
        style.font
    ]
    shared = max(1, len(style.groups))
    columns: list[int | None] = [
        *(year for year in style.years for _ in range(shared)),
        *([None] if style.variation else []),
    ]
    sample_statements = pen.width("(8.888.888.888)" if not style.decimals else "(888.888.888,88)")
    wide = max(
        sample_statements + 14,
        max(pen.width(line) for y in style.years for line in heading(style, y)) + 12,
    )
    edges = [right - (len(columns) - 1 - i) * wide for i in range(len(columns))]
    if style.percent:
        edges = [e - 45 for e in edges]
    note_x = edges[0] - wide - 22
    label_end = (note_x if style.notes != "none" else edges[0] - wide) - 10

    def heads(y: float) -> float:
        pen.font(bold, style.size)
        if style.groups:
            for number, year in enumerate(style.years):
                group = edges[number * shared : (number + 1) * shared]
                for line, text in enumerate(heading(style, year)):
                    pen.text(
                        (group[0] - wide + 14 + group[-1] - pen.width(text)) / 2,
                        y + line * 1.25 * style.size,
                        text,
                    )
                for edge, text in zip(group, style.groups, strict=True):
                    pen.text(
                        edge - pen.width(text),
                        y + len(heading(style, year)) * 1.25 * style.size,
                        text,
                    )
            pen.font(style.font, style.size)
            return (
                y + (len(heading(style, style.years[0])) + 1) * 1.25 * style.size + 0.6 * style.size
            )
        lines = [
            heading(style, c)
            if c is not None
            else ["Variación" if style.lang == "es" else "Change"]
            for c in columns
        ]
        deep = max(map(len, lines))
        if style.heads == "span":
            word = (SPANISH if style.lang == "es" else ENGLISH)[style.month - 1]
            day = {2: 28, 4: 30, 6: 30, 9: 30, 11: 30}.get(style.month, 31)
            text = f"Al {day} de {word} de" if style.lang == "es" else f"{word} {day},"
            pen.text(
                (edges[0] - wide + edges[len(style.years) - 1] - pen.width(text)) / 2 + 5, y, text
            )
            y += 1.3 * style.size
        for edge, column in zip(edges, lines, strict=True):
            for number, text in enumerate(column):
                x = (
                    edge - pen.width(text)
                    if style.align == "right"
                    else edge - wide / 2 - pen.width(text) / 2
                )
                pen.text(x, y + (number + deep - len(column)) * 1.25 * style.size, text)
        if style.notes in ("head", "fancy"):
            text = "Nota" if style.lang == "es" else "Note"
            pen.text(note_x - pen.width(text) / 2, y + (deep - 1) * 1.25 * style.size, text)
        if style.percent:
            pen.text(right - pen.width("%"), y, "%")
        pen.font(style.font, style.size)
        return y + deep * 1.25 * style.size + 0.6 * style.size

    y = heads(top)
    section: str | None = None
    on_page = 0
    for row in rows:
        if on_page >= style.per_page or y > pen.h - 70 - style.crop:
            _foot(pen, style)
            pen.next()
            y = retitle() if style.running or style.repeat_heads else 60.0 + style.crop
            y = heads(y) if style.repeat_heads else y
            on_page = 0
        on_page += 1
        if row.kind == "section":
            section = row.label.upper() if style.case == "upper" else row.label
            pen.font(bold, style.size)
            pen.text(left, y, section + (":" if style.case == "colon" else ""))
            pen.font(style.font, style.size)
            y += style.pitch * style.size
            continue
        y = _row(
            pen,
            style,
            rng,
            row,
            left,
            label_end,
            note_x,
            edges,
            wide,
            columns,
            y,
            section,
            truths,
            bold,
            right,
        )


def _row(
    pen: Pen,
    style: Style,
    rng: Random,
    row: Any,
    left: float,
    label_end: float,
    note_x: float,
    edges: list[float],
    wide: float,
    columns: list[int | None],
    y: float,
    section: str | None,
    truths: list[Truth],
    bold: str,
    right: float,
) -> float:
    total = row.kind == "total"
    pen.font(bold if total else style.font, style.size)
    x = left + (0 if total else style.indent)
    if style.codes != "none":
        if not total:
            first, second, third = (rng.randrange(1, 10) for _ in range(3))
            pen.text(
                left,
                y,
                {
                    "dots": f"{first}.{second}.0{third}",
                    "dashes": f"{first}{second}-0{third}",
                    "plain": f"{first}{second}0{third}",
                }[style.codes],
            )
        x = left + 5.5 * style.size
    parts = _wrapped(
        pen,
        row.label,
        label_end - x,
        force=style.wrap != "none" and not total and rng.random() < 0.35,
    )
    step = (1.15 if style.wrap_tight else style.pitch) * style.size
    value_line = {
        "first": 0,
        "last": len(parts) - 1,
        "middle": (len(parts) - 1) / 2,
        "none": len(parts) - 1,
    }[style.wrap]
    for number, part in enumerate(parts):
        text = part
        hang = 8.0 if number else 0.0
        if style.leaders and number == len(parts) - 1 and value_line == number:
            room = label_end - x - hang - pen.width(text)
            text = (
                f"{text} {'.' * max(3, int(room / pen.width('.')) - 2)}"
                if room > 4 * pen.width(".")
                else text
            )
        pen.text(x + hang, y + number * step, text)
    base = y + value_line * step
    if style.notes != "none" and not total and rng.random() < 0.7:
        note = str(rng.randrange(3, 38))
        if style.notes == "fancy":
            note = rng.choice(
                [
                    note,
                    f"{note}.{rng.randrange(1, 5)}",
                    f"{note}({rng.choice('abc')})",
                    f"{note}, {int(note) + 1}",
                ]
            )
        pen.text(note_x - pen.width(note) / 2, base, note)
    for edge, year in zip(edges, columns, strict=True):
        if not total and rng.random() < 0.06:
            pen.text(edge - pen.width(style.zero), base, style.zero)
            continue
        top = 10 ** rng.randrange(3, 8) if not style.decimals else 10 ** rng.randrange(3, 7)
        number = rng.randrange(top // 10, top) * (
            -1 if rng.random() < (0.18 if not total else 0.05) else 1
        )
        if rng.random() < 0.05 and not total:
            number = rng.randrange(1, 900)
        printed, value = amount(number or 7, style, rng)
        width = pen.width(printed)
        hang = pen.width(")") if style.align == "digits" and printed.endswith(")") else 0.0
        start = (
            edge - width + hang
            if style.align in ("right", "digits")
            else edge - wide / 2 - width / 2
        )
        if style.sign == "all" or (style.sign == "totals" and total):
            pen.text(edge - wide + 8, base, "$")
        box = pen.text(start, base, printed)
        if style.mark and not printed.endswith(")") and rng.random() < 0.1:
            pen.text(start + width, base, style.mark)
        truths.append(
            Truth(
                row.label,
                year,
                ends(style, year) if year else None,
                value,
                printed.replace(" ", ""),
                pen.pages,
                box,
                section,
                total,
            )
        )
    if style.percent:
        mark, sign = "." if style.thousands == "," else ",", "%" if style.percent_sign else ""
        text = f"{rng.randrange(-40, 60)}{mark}{rng.randrange(10)}{sign}"
        pen.text(right - pen.width(text), base, text)
    pen.font(style.font, style.size)
    return y + (len(parts) - 1) * step + style.pitch * style.size


def _wrapped(pen: Pen, label: str, room: float, *, force: bool) -> list[str]:
    if force and len(label.split()) >= 5:
        room = min(room, pen.width(label) * 0.62)
    return pen.broken(label, room)


# styles


StyleMaker = Callable[[Random], Style]


def _base(rng: Random) -> Style:
    lang = rng.choice(["es", "en"])
    first = rng.randrange(2015, 2026)
    es = lang == "es"
    return Style(
        lang=lang,
        doc_type=rng.choice(["balance_sheet", "income_statement", "cash_flow"]),
        years=[first - i for i in range(rng.choice([1, 2, 2, 2, 3]))],
        heads=rng.choice(["year", "dmy", "slash", "short", "longline"])
        if es
        else rng.choice(["year", "longline", "short", "year"]),
        thousands="." if es else ",",
        notes=rng.choice(["none", "head", "head"]),
        negative=rng.choice(["parens", "parens", "minus"]),
        currency="CLP" if es else "USD",
        scale=rng.choice([1, 1000, 1000, 1000000]),
        units=rng.choice(["title", "title", "head"]),
        font=rng.choice(["Helvetica", "Times-Roman"]),
        size=rng.choice([8.0, 9.0, 9.5]),
        zero=rng.choice(["-", "–", "—"]),
        case=rng.choice(["plain", "upper", "colon"]),
        indent=rng.choice([0.0, 8.0, 12.0]),
        centered=rng.random() < 0.7,
        rows=rng.randrange(12, 24),
    )


def _with(**fixed: Any) -> StyleMaker:
    def style_of(rng: Random) -> Style:
        style = _base(rng)
        for name, value in fixed.items():
            setattr(style, name, value(rng) if callable(value) else value)
        if len(style.years) > 2 and style.page[0] < 700:
            style.size = min(style.size, 8.0)
        if len(style.years) > 3 or style.groups or style.codes != "none":
            style.notes = "none"
        if style.groups:
            style.years = style.years[:2]
        return style

    return style_of


def _several(rng: Random, low: int, high: int) -> list[int]:
    first = rng.randrange(2018, 2026)
    return [first - i for i in range(rng.randrange(low, high + 1))]


TUNED: dict[str, StyleMaker] = {
    "plain": _with(),
    "leaders": _with(leaders=True),
    "wrapped": _with(wrap=lambda r: r.choice(["first", "last", "middle"]), wrap_tight=True),
    "wrapped_loose": _with(wrap=lambda r: r.choice(["first", "last"]), wrap_tight=False),
    "many_years": _with(years=lambda r: _several(r, 3, 5), page=(842.0, 595.0), per_page=24),
    "rotated": _with(rotate=lambda r: r.choice([90, 180, 270])),
    "sideways": _with(sideways=True, page=(792.0, 612.0), per_page=22),
    "cropped": _with(crop=lambda r: r.choice([20.0, 36.0])),
    "pages": _with(
        rows=60, per_page=lambda r: r.randrange(22, 34), repeat_heads=True, running=True
    ),
    "pages_bare": _with(
        rows=60, per_page=lambda r: r.randrange(22, 34), repeat_heads=False, running=False
    ),
    "beside": _with(
        beside=True,
        page=(842.0, 595.0),
        doc_type="balance_sheet",
        notes="none",
        years=lambda r: _several(r, 1, 2),
        size=7.5,
        rows=30,
        heads="year",
        wrap="none",
    ),
    "signs": _with(
        sign=lambda r: r.choice(["all", "totals"]),
        negative=lambda r: r.choice(["parens", "spaced"]),
        decimals=lambda r: r.choice([0, 2]),
    ),
    "headings": _with(
        heads=lambda r: r.choice(["long", "range", "span", "dots", "shortyear", "fy"]),
        month=lambda r: r.choice([12, 6, 9]),
    ),
    "variation": _with(variation=True, percent=lambda r: r.random() < 0.4),
    "fancy_notes": _with(notes="fancy"),
    "digits": _with(align="digits", font="Courier", size=7.0),
    "spaces": _with(
        thousands=" ",
        negative=lambda r: r.choice(["minus", "parens"]),
        decimals=lambda r: r.choice([0, 2]),
    ),
    "apostrophes": _with(thousands="'", currency="CHF", units="title", negative="minus"),
    "codes": _with(
        codes=lambda r: r.choice(["dots", "dashes", "plain"]),
        negative=lambda r: r.choice(["parens", "after"]),
    ),
    "shares": _with(
        percent=True,
        percent_sign=False,
        heads=lambda r: r.choice(["named", "unit", "year"]),
        units="title",
        mark="*",
    ),
    "groups": _with(
        groups=("Consolidado", "Individual"),
        page=(842.0, 595.0),
        heads="year",
        per_page=22,
        size=8.0,
    ),
}

HELD_OUT: dict[str, StyleMaker] = {
    "annual_report": _with(
        font="Times-Roman",
        notes="fancy",
        heads=lambda r: r.choice(["long", "span"]),
        align="digits",
        case="upper",
        month=lambda r: r.choice([12, 3]),
    ),
    "fund": _with(
        decimals=2,
        page=(595.0, 842.0),
        currency="EUR",
        units="title",
        scale=1,
        thousands=lambda r: r.choice([".", ","]),
        leaders=lambda r: r.random() < 0.5,
    ),
    "holding": _with(
        page=(842.0, 595.0),
        years=lambda r: _several(r, 2, 4),
        rotate=90,
        rows=30,
        per_page=22,
        wrap="last",
        heads=lambda r: r.choice(["dmy", "shortyear"]),
    ),
    "interim": _with(
        month=lambda r: r.choice([6, 9]),
        heads=lambda r: r.choice(["dots", "slash", "longline"]),
        align="center",
        size=8.0,
        pitch=1.8,
    ),
    "glyphs": _with(spaced=True, years=lambda r: _several(r, 1, 2), indent=16.0, pitch=1.4),
    "ledger": _with(
        rows=48,
        per_page=30,
        repeat_heads=lambda r: r.random() < 0.5,
        running=lambda r: r.random() < 0.5,
        sign="totals",
        crop=18.0,
        wrap="first",
    ),
    "two_sided": _with(
        beside=True,
        page=(1008.0, 612.0),
        doc_type="balance_sheet",
        notes="none",
        years=lambda r: _several(r, 2, 2),
        size=8.0,
        rows=36,
        heads=lambda r: r.choice(["year", "slash"]),
        case="upper",
    ),
    "nordic": _with(
        thousands=" ",
        currency="EUR",
        units="title",
        codes="dots",
        font="Times-Roman",
        heads=lambda r: r.choice(["dots", "longline"]),
        negative="minus",
        pitch=1.7,
    ),
    "mainframe": _with(
        font="Courier",
        size=7.0,
        negative="after",
        codes=lambda r: r.choice(["dashes", "plain"]),
        heads="slash",
        rows=40,
        per_page=36,
        centered=False,
    ),
    "split": _with(
        groups=("Corriente", "No corriente"),
        page=(842.0, 595.0),
        rotate=270,
        heads=lambda r: r.choice(["year", "longline"]),
        doc_type="balance_sheet",
        per_page=22,
        size=7.5,
    ),
    "analysis": _with(
        percent=True,
        percent_sign=False,
        variation=True,
        heads=lambda r: r.choice(["named", "shortyear"]),
        mark="*",
        page=(842.0, 595.0),
        per_page=24,
    ),
}


def tuned(count: int, seed: int = 1) -> Iterator[Statement]:
    """Yield statements of the styles that rules are developed with."""
    yield from _made("tuned", TUNED, statement_words.TUNED, count, seed)


def held_out(count: int, seed: int = 90_001) -> Iterator[Statement]:
    """Yield statements that are only measured."""
    yield from _made("held", HELD_OUT, statement_words.HELD_OUT, count, seed)


def _made(
    part: str,
    styles: dict[str, StyleMaker],
    words: statement_words.Words,
    count: int,
    seed: int,
) -> Iterator[Statement]:
    names = list(styles)
    for number in range(count):
        name = names[number % len(names)]
        rng = Random(f"{part}-{seed}-{number}")
        yield make(f"{part}-{name}-{number}", styles[name](rng), rng, words)
