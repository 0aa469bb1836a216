"""Statements printed by Chromium: auditor, charity, board pack, annual report, spreadsheet."""

from __future__ import annotations

from random import Random

from pipelines.documents.corpus_c.chromium import filled, footer, statement, table
from pipelines.documents.corpus_c.figures import MONTHS, Column, Numerals, end, rows, spoken, words
from pipelines.documents.drawing import Statement


def auditor(rng: Random) -> Statement:
    """An auditor's typed report after an opinion: India (lakhs), South Africa, Ireland."""
    land, kind, year = (
        rng.choice(["in", "za", "ie"]),
        rng.choice(["balance_sheet", "income_statement"]),
        rng.randint(2019, 2025),
    )
    month = {"in": 3, "za": rng.choice([2, 6]), "ie": rng.choice([12, 4])}[land]
    ends = [end(year, month), end(year - 1, month)]
    currency, group, places = {
        "in": ("INR", "lakh", 2),
        "za": ("ZAR", " ", 0),
        "ie": ("EUR", ",", 0),
    }[land]
    scale = rng.choice([1, 1000]) if land == "za" else 1
    numerals = Numerals(
        group,
        ".",
        places,
        rng.choice(["({})", "-{}"]) if land == "in" else "({})",
        rng.choice(["-", "–"]),
    )
    joint = rng.choice(["As at\n{}" if kind == "balance_sheet" else "Year ended\n{}", "{}"])
    heads = [
        joint.format(spoken(e, "en")) if land == "in" else e[:4] + "\n€" * (land == "ie")
        for e in ends
    ]
    columns = [Column(head, int(e[:4]), e) for head, e in zip(heads, ends, strict=True)]
    note, corner = (
        rng.choice(["Note", "Note(s)", "Notes", ""]),
        f"Figures in {'Rand' if scale == 1 else 'R thousands'}" * (land == "za"),
    )
    body = rows(rng, f"auditor.{kind}", columns, 6.3 if scale == 1 else 4.6, places, notes=0.7)
    org, title, date = (
        rng.choice(words(f"orgs.{land}")),
        words(f"auditor.{kind}")[0],
        spoken(ends[0], "en"),
    )
    if land == "za":
        title = (
            "Statement of Financial Position"
            if kind == "balance_sheet"
            else "Statement of Comprehensive Income"
        )
    opinion = filled(rng, "opinion", org=org, date=date) if rng.random() < 0.6 else ""
    when = f"{'as at' if kind == 'balance_sheet' else 'for the year ended'} {date}"
    unit = (
        rng.choice(["(All amounts in Indian Rupees, unless otherwise stated)", "(Amount in ₹)"])
        if land == "in"
        else ""
    )
    cells = table(body, columns, numerals, note=note, corner=corner)
    html = filled(
        rng, "auditor", opinion=opinion, org=org, title=title, when=when, unit=unit, table=cells
    )
    return statement(kind, html, body, columns, numerals, (org, title, currency, scale))


def charity(rng: Random) -> Statement:
    """A charity's accounts from a word processor: funds side by side, or a plain balance sheet."""
    kind, year = (
        rng.choice(["income_statement", "income_statement", "balance_sheet"]),
        rng.randint(2019, 2025),
    )
    month, (sign, currency) = (
        rng.choice([3, 3, 8, 12]),
        rng.choice([("£", "GBP"), ("£", "GBP"), ("€", "EUR")]),
    )
    period, scale = end(year, month), rng.choice([1, 1, 1000])
    unit = sign if scale == 1 else f"{sign}'000"
    total = "Total\nfunds\n" if kind == "income_statement" else ""
    funds = (
        ["Unrestricted\nfunds", "Restricted\nfunds"] + ["Endowment\nfunds"] * (rng.random() < 0.3)
        if total
        else []
    )
    columns = [
        Column(f"{f}\n{year}\n{unit}", year, period, weight=0.7**i) for i, f in enumerate(funds)
    ]
    columns.append(
        Column(
            f"{total}{year}\n{unit}",
            year,
            period,
            "sum" if funds else "value",
            tuple(range(len(funds))),
        )
    )
    columns.append(Column(f"{total}{year - 1}\n{unit}", year - 1, end(year - 1, month)))
    numerals = Numerals(
        ",", ".", 0, rng.choice(["({})", "({})", "−{}"]), rng.choice(["-", "–", "—"])
    )
    body = rows(rng, f"charity.{kind}", columns, 5.2 if scale == 1 else 3.2, notes=0.6)
    org, title = rng.choice(words("orgs.charity")), words(f"charity.{kind}")[0]
    when = f"{'for the year ended' if total else 'as at'} {spoken(period, 'en')}"
    html = filled(
        rng,
        "charity",
        org=org,
        title=title,
        when=when,
        table=table(body, columns, numerals, note="Note"),
    )
    return statement(
        kind, html, body, columns, numerals, (org, title, currency, scale), **footer(0, org)
    )


def board_columns(rng: Random, lang: str) -> tuple[list[Column], str]:
    """Return months, quarters or years across, or actual against budget."""
    mode, count, year = (
        rng.choice(["months", "quarters", "years", "budget"]),
        rng.randint(3, 5),
        rng.randint(2021, 2025),
    )
    names = [name.capitalize() for name in MONTHS[lang]]
    if mode == "months":
        last, glue = rng.randint(5, 12), rng.choice(["-", " ", "'"])
        return [
            Column(f"{names[m][:3]}{glue}{year % 100}", year, end(year, m + 1))
            for m in range(last - count, last)
        ], ""
    if mode == "quarters":
        form = (
            rng.choice(["Q{1} {0}", "Q{1}'{2}", "{1}Q{2}"])
            if lang == "en"
            else rng.choice(["{1}T {0}", "T{1} {0}"])
        )
        quarters = [divmod(year * 4 + 2 - i, 4) for i in reversed(range(count))]
        return [
            Column(form.format(y, q + 1, y % 100), y, end(y, 3 * q + 3)) for y, q in quarters
        ], ""
    if mode == "years":
        return [
            Column(f"FY{y}" if lang == "en" else f"Año {y}", y, end(y, 12))
            for y in range(year - count + 1, year + 1)
        ], ""
    month = rng.randint(3, 12)
    heads = (
        ["Actual", "Budget", "Variance"] if lang == "en" else ["Real", "Presupuesto", "Desviación"]
    )
    over = f'<tr><th></th><th class="over" colspan="2">{names[month - 1]} {year}</th><th></th></tr>'
    return [
        *(Column(h, year, end(year, month)) for h in heads[:2]),
        Column(heads[2], kind="change", of=(0, 1)),
    ], over


def board(rng: Random) -> Statement:
    """A slide of a start-up's board pack in either language, with remarks beside the table."""
    kind, lang = rng.choice(["income_statement", "cash_flow"]), rng.choice(["en", "en", "es"])
    columns, over = board_columns(rng, lang)
    currency, unit, scale, size, marks = rng.choice(words(f"units.{lang}")).split(" | ")
    numerals = Numerals(
        marks[0], marks[1], 0, rng.choice(["({})", "-{}", "−{}"]), rng.choice(["–", "-"])
    )
    name = f"board{'_es' * (lang == 'es')}.{kind}"
    body = rows(rng, name, columns, float(size))
    org, title, (remarks, meeting, foot) = (
        rng.choice(words("orgs.startup")),
        words(name)[0],
        words(f"remarks.{lang}"),
    )
    cells = table(body, columns, numerals, corner=unit, groups=over)
    html = filled(
        rng, "board", title=title, org=org, meeting=meeting, table=cells, remarks=remarks, foot=foot
    )
    return statement(kind, html, body, columns, numerals, (org, title, currency, int(scale)))


def annual(rng: Random) -> Statement:
    """A listed group's annual report: coloured current year, two to five years, percentages."""
    kind, year = rng.choice(["income_statement", "balance_sheet"]), rng.randint(2018, 2025)
    currency, unit, scale, size, marks = rng.choice(words("units.annual")).split(" | ")
    places = rng.choice([0, 1]) if scale == "1000000" else 0
    numerals = Numerals(
        marks[0].replace("_", " "), marks[1], places, rng.choice(["({})", "-{}", "−{}", "–{}"]), "—"
    )
    form = rng.choice(["{0}", "Ejercicio {0}", "31.12.{0}", "Dic-{1}", "Año {0}", "31 dic {0}"])
    years = range(year, year - rng.choice([2, 2, 3, 4, 5]), -1)
    columns = [
        Column(form.format(y, y % 100), y, end(y, 12))
        for y in (years if rng.random() < 0.7 else reversed(years))
    ]
    now, before = (0, 1) if columns[0].year == year else (len(columns) - 1, len(columns) - 2)
    if len(columns) < 4 and rng.random() < 0.5:
        columns.append(
            Column(rng.choice(["Var. %", "% var.", "Δ %"]), kind="percent", of=(now, before))
        )
    note, loud = rng.choice(["Nota", ""]), rng.random() < 0.3
    body = rows(rng, f"group.{kind}", columns, float(size), places, notes=0.6)
    org, title, cells = (
        rng.choice(words(f"orgs.{currency}")),
        words(f"group.{kind}")[0],
        table(body, columns, numerals, note=note),
    )
    turn, width = ("landscape", "30%") if len(columns) > 4 else ("portrait", "44%")
    look = {"turn": turn, "width": width, "now": now, "letters": "uppercase" if loud else "none"}
    html = filled(rng, "annual", org=org, title=title, unit=unit, table=cells, **look)
    for row in body:
        row.section = row.section.upper() if row.section and loud else row.section
    return statement(
        kind, html, body, columns, numerals, (org, title, currency, int(scale)), **footer(1, org)
    )


def sheet(rng: Random) -> Statement:
    """A printed spreadsheet: grid lines, a currency sign at the left of the cell, odd year ends."""
    kind, year, month = (
        rng.choice(["cash_flow", "income_statement", "balance_sheet"]),
        rng.randint(2019, 2025),
        rng.choice([12, 6, 3, 9]),
    )
    currency, unit, sign = rng.choice(words("units.sheet")).split(" | ")
    form = rng.choice(["{2}/{1}/{0}", "{3}-{4}", "Ejercicio\n{0}", "Saldos al\n{2}/{1}/{0}"])
    ends = [end(year - back, month) for back in range(rng.choice([1, 2, 2, 3]))]
    columns = [
        Column(form.format(*e.split("-"), MONTHS["es"][month - 1][:3], e[2:4]), int(e[:4]), e)
        for e in ends
    ]
    if len(columns) == 2 and rng.random() < 0.6:
        columns.append(Column("Variación\nabsoluta", kind="change", of=(0, 1)))
        columns += [Column("Variación\n%", kind="percent", of=(0, 1))] * (rng.random() < 0.6)
    places = rng.choice([0, 2])
    numerals = Numerals(".", ",", places, rng.choice(["({})", "-{}"]), rng.choice(["-", ""]))
    body = rows(rng, f"sheet.{kind}", columns, rng.uniform(5.5, 7), places, notes=0.3)
    org, title, date = (
        rng.choice(words("orgs.ar")),
        words(f"sheet.{kind}")[0],
        spoken(ends[0], "es"),
    )
    title = title.upper() if rng.random() < 0.5 else title
    when = f"Al {date}" if kind == "balance_sheet" else f"Ejercicio económico finalizado el {date}"
    when += ", comparativo con el ejercicio anterior" * (len(columns) > 1)
    corner, sign, note = (
        rng.choice(["Concepto", "Rubro", ""]),
        rng.choice([sign, ""]),
        rng.choice(["Anexo / Nota", "", ""]),
    )
    turn, cells = (
        "landscape" if len(columns) > 3 else "portrait",
        table(body, columns, numerals, corner=corner, sign=sign, note=note),
    )
    html = filled(rng, "sheet", turn=turn, org=org, title=title, when=when, unit=unit, table=cells)
    return statement(
        kind, html, body, columns, numerals, (org, title, currency, 1), **footer(2, org)
    )
