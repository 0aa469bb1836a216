"""Eight origins: Chile (two), Mexico, Spain, Argentina, US, UK, management accounts."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable, Iterator
from random import Random

from pipelines.documents.corpus_a.sheet import Column, Sheet, draw, words
from pipelines.documents.drawing import Statement
from pipelines.documents.months import ENGLISH, SPANISH

KINDS = ["balance_sheet", "income_statement", "cash_flow"]
A4, LETTER, WIDE = (595.0, 842.0), (612.0, 792.0), (842.0, 595.0)


def _end(year: int, month: int = 12) -> str:
    return f"{year}-{month:02d}-{monthrange(year, month)[1]:02d}"


def _dmy(ends: str, mark: str) -> str:
    return mark.join(reversed(ends.split("-")))


def _es(ends: str) -> str:
    year, month, day = ends.split("-")
    return f"{int(day)} de {SPANISH[int(month) - 1]} de {year}"


def _us(ends: str) -> str:
    year, month, day = ends.split("-")
    return f"{ENGLISH[int(month) - 1]} {int(day)}, {year}"


def _uk(ends: str) -> str:
    year, month, day = ends.split("-")
    return f"{int(day)} {ENGLISH[int(month) - 1]} {year}"


def chile(rng: Random) -> Sheet:
    """Sent to the regulator: dates over M$ in each column, a note column, long wrapped labels."""
    doc, year = rng.choice(KINDS), rng.randrange(2017, 2026)
    org = rng.choice(words("chile")["orgs"])
    title = {
        "balance_sheet": "Estados Consolidados de Situación Financiera Clasificados",
        "income_statement": "Estados Consolidados de Resultados por Función",
        "cash_flow": "Estados Consolidados de Flujos de Efectivo, Método Directo",
    }[doc]
    title = title.upper() if rng.random() < 0.4 else title
    interim = rng.choice([12, 12, 6, 9])
    dates = [_end(year, interim), _end(year - 1, 12 if doc == "balance_sheet" else interim)]
    usd, millions = rng.random() < 0.25, rng.random() < 0.2
    unit = ("MMUS$" if millions else "MUS$") if usd else ("MM$" if millions else "M$")
    money = ("millones" if millions else "miles") + (
        " de dólares estadounidenses" if usd else " de pesos chilenos"
    )
    if doc == "balance_sheet":
        when = (
            f"Al {_es(dates[0])} y {_es(dates[1])}"
            if interim != 12
            else f"Al 31 de diciembre de {year} y {year - 1}"
        )
        columns = [Column([_dmy(d, "-"), unit], d) for d in dates]
    else:
        when = f"Por los períodos terminados al {_dmy(dates[0], '-')} y {_dmy(dates[1], '-')}"
        columns = [Column([f"01-01-{d[:4]}", _dmy(d, "-"), unit], d) for d in dates]
    return Sheet(
        "chile",
        "es",
        doc,
        org,
        title,
        "USD" if usd else "CLP",
        1_000_000 if millions else 1000,
        rng.choice(
            [
                [org, title, when, f"(Cifras en {money} - {unit})"],
                [title, when, f"(En {money})", org],
                [org, title, when],
            ]
        ),
        columns,
        notes=rng.choice(["Nota", "Nota", "N°", "Nota N°"]),
        note_kind="es",
        thousands=".",
        zero=rng.choice(["-", "0", "-"]),
        centered=rng.random() < 0.5,
        value_on=rng.choice(["last", "first"]),
        font=rng.choice(["Helvetica", "Times-Roman", "Vera"]),
        size=rng.choice([7.0, 7.5, 8.0]),
        page=LETTER,
        prose=rng.choice([0, 0, 1]),
        per_page=rng.choice([60, 26]),
        continued=rng.choice(["", "(continuación)"]),
        repeat_heads=True,
        foot=[
            (
                "Las notas adjuntas números 1 a 34 forman parte integral de estos estados "
                "financieros consolidados."
            )
        ],
    )


def chile_small(rng: Random) -> Sheet:
    """Printed by an accountant: one column of whole pesos, account codes, RUT, trailing minus."""
    doc, year = rng.choice(KINDS[:2]), rng.randrange(2015, 2026)
    org = rng.choice(words("chile_small")["orgs"])
    ends = _end(year, rng.choice([12, 12, 6]))
    title = {
        "balance_sheet": rng.choice(["BALANCE GENERAL", "BALANCE CLASIFICADO"]),
        "income_statement": "ESTADO DE RESULTADOS",
    }[doc]
    when = {
        "balance_sheet": rng.choice([f"Al {_dmy(ends, '-')}", f"Al {_es(ends)}"]),
        "income_statement": f"Desde 01-01-{year} hasta {_dmy(ends, '-')}",
    }[doc]
    heads = rng.choice(
        [["$"], ["Saldo $"], ["Monto en $"], [_dmy(ends, "/")], ["Pesos", _dmy(ends, "-")]]
    )
    return Sheet(
        "chile_small",
        "es",
        doc,
        org,
        title,
        "CLP",
        1,
        [
            org,
            f"R.U.T.: 76.{rng.randrange(100, 999)}.{rng.randrange(100, 999)}-{rng.randrange(10)}",
            "Giro: comercio y servicios",
            title,
            when,
            rng.choice(["(Cifras en pesos chilenos)", "Expresado en pesos"]),
        ],
        [Column(heads, ends)],
        corner=rng.choice(["Cuenta", "", "Detalle"]),
        thousands=".",
        negative=rng.choice(["after", "minus", "parens"]),
        codes=rng.random() < 0.6,
        zeros=0.04,
        zero="0",
        font=rng.choice(["Courier", "Helvetica"]),
        size=rng.choice([8.0, 9.0]),
        page=LETTER,
        centered=rng.random() < 0.5,
        indent=10,
        leaders=rng.random() < 0.4,
        foot=["CONTADOR GENERAL REG. 18.442-1", "REPRESENTANTE LEGAL"],
    )


def mexico(rng: Random) -> Sheet:
    """The exchange's form with two closings, or an audited report with peso signs."""
    doc, year = rng.choice(KINDS), rng.randrange(2018, 2026)
    org = rng.choice(words("mexico")["orgs"])
    exchange = rng.random() < 0.5
    if exchange:
        month = rng.choice([3, 6, 9, 12])
        ends = _end(year, month)
        before = _end(year - 1, 12 if doc == "balance_sheet" else month)
        title = {
            "balance_sheet": "[210000] Estado de situación financiera, circulante/no circulante",
            "income_statement": (
                "[310000] Estado de resultados, resultado del periodo, por función de gasto"
            ),
            "cash_flow": "[520000] Estado de flujos de efectivo, método indirecto",
        }[doc]
        if doc == "balance_sheet":
            columns = [
                Column(["Cierre Periodo", "Actual", ends], ends),
                Column(["Cierre Ejercicio", "Anterior", before], before),
            ]
        else:
            columns = [
                Column(["Acumulado Año", "Actual", f"{year}-01-01 - {ends}"], ends),
                Column(["Acumulado Año", "Anterior", f"{year - 1}-01-01 - {before}"], before),
            ]
        return Sheet(
            "mexico",
            "es",
            doc,
            org,
            title,
            "MXN",
            1,
            [
                f"Clave de Cotización: {org[:5].upper()}",
                org,
                f"Trimestre: {month // 3}   Año: {year}",
                "Cantidades expresadas en pesos mexicanos (MXN)",
                title,
            ],
            columns,
            corner="Concepto",
            zero="0",
            zeros=0.25,
            negative=rng.choice(["parens", "minus"]),
            font="Helvetica",
            size=7.5,
            page=LETTER,
            sideways=False,
            value_on="first",
            per_page=rng.choice([60, 24]),
            repeat_heads=rng.random() < 0.6,
            prose=rng.choice([0, 1]),
        )
    title = {
        "balance_sheet": "Estados consolidados de posición financiera",
        "income_statement": "Estados consolidados de resultados",
        "cash_flow": "Estados consolidados de flujos de efectivo",
    }[doc]
    years = [year - i for i in range(rng.choice([2, 2, 3]))]
    listed = ", ".join(map(str, years[:-1])) + f" y {years[-1]}"
    scale, unit_line = rng.choice(
        [
            (1000, "(En miles de pesos mexicanos)"),
            (1000, "(Miles de pesos)"),
            (1_000_000, "(Cifras en millones de pesos mexicanos)"),
        ]
    )
    return Sheet(
        "mexico",
        "es",
        doc,
        org,
        title,
        "MXN",
        scale,
        [
            org,
            title,
            (
                f"{'Al' if doc == 'balance_sheet' else 'Por los años que terminaron el'} "
                f"31 de diciembre de {listed}"
            ),
            unit_line,
        ],
        [Column([str(y)], _end(y)) for y in years],
        corner=rng.choice(["", "Activo"]) if doc == "balance_sheet" else "",
        notes=rng.choice(["Notas", "", "Nota"]),
        note_kind="es",
        sign="$",
        sign_on=rng.choice(["totals", "all", "none"]),
        hang=rng.random() < 0.5,
        font=rng.choice(["Times-Roman", "Helvetica"]),
        size=8.5,
        page=LETTER,
        centered=True,
        foot=["Las notas adjuntas son parte de los estados financieros consolidados."],
        prose=rng.choice([0, 1]),
    )


def spain(rng: Random) -> Sheet:
    """The general accounting plan: enumerated labels, headings with sums, «Ejercicio 2024»."""
    doc, year = rng.choice(KINDS), rng.randrange(2017, 2026)
    org = rng.choice(words("spain")["orgs"])
    scale, decimals, unit_line = rng.choice(
        [
            (1, 2, "(Expresado en euros)"),
            (1, 0, "(Euros)"),
            (1000, 0, "(Miles de euros)"),
            (1000, 0, "(Expresado en miles de euros)"),
            (1000, 0, "(€ 000)"),
        ]
    )
    name = {
        "balance_sheet": "Balance",
        "income_statement": "Cuenta de Pérdidas y Ganancias",
        "cash_flow": "Estado de Flujos de Efectivo",
    }[doc]
    title = rng.choice([f"{name}", name.upper(), name])
    when = (
        f"al 31 de diciembre de {year}"
        if doc == "balance_sheet"
        else f"correspondiente al ejercicio anual terminado el 31 de diciembre de {year}"
    )
    heads = rng.choice(
        [
            lambda y: [f"Ejercicio {y}"],
            lambda y: [f"31.12.{y}"],
            lambda y: [str(y)],
            lambda y: ["Ejercicio", str(y)],
            lambda y: [f"31/12/{y % 100:02d}"],
        ]
    )
    years = [year, year - 1]
    return Sheet(
        "spain",
        "es",
        doc,
        org,
        title,
        "EUR",
        scale,
        rng.choice(
            [
                [org, title, when, unit_line],
                [org, f"CIF A-28{rng.randrange(100000, 999999)}", title, when, unit_line],
            ]
        ),
        [Column(heads(y), _end(y)) for y in years],
        corner={
            "balance_sheet": rng.choice(["ACTIVO", ""]),
            "income_statement": "",
            "cash_flow": "",
        }[doc],
        notes=rng.choice(["Notas", "Nota", ""]),
        note_kind="es",
        thousands=".",
        decimals=decimals,
        negative=rng.choice(["parens", "minus", "parens"]),
        zero=rng.choice(["-", "—"]),
        blanks=rng.choice([0.0, 0.05]),
        font=rng.choice(["Times-Roman", "Helvetica", "Vera"]),
        size=rng.choice([7.5, 8.0]),
        centered=rng.random() < 0.5,
        prose=rng.choice([0, 0, 2]),
        per_page=rng.choice([60, 24]),
        continued=rng.choice(["", "(cont.)"]),
        foot=[
            (
                "Las Notas 1 a 22 descritas en la Memoria adjunta forman parte integrante de "
                "las cuentas anuales."
            )
        ],
    )


def argentina(rng: Random) -> Sheet:
    """Assets beside liabilities, or months in two columns; dots in dates; constant pesos."""
    doc, year = rng.choice(KINDS), rng.randrange(2018, 2026)
    org = rng.choice(words("argentina")["orgs"])
    month = rng.choice([6, 12, 9, 3])
    ends = _end(year, month)
    scale, unit_line = rng.choice(
        [
            (1000, "Cifras expresadas en miles de pesos argentinos"),
            (1_000_000, "Expresado en millones de pesos, en moneda homogénea"),
            (1, "(cifras expresadas en pesos)"),
        ]
    )
    title = {
        "balance_sheet": "Estado de Situación Patrimonial",
        "income_statement": "Estado de Resultados",
        "cash_flow": "Estado de Flujo de Efectivo",
    }[doc]
    before = _end(year - 1, 12 if doc == "balance_sheet" and month != 12 else month)
    beside = doc == "balance_sheet" and rng.random() < 0.5
    spans: list[tuple[str, int, int]] = []
    mark = rng.choice([".", "/"])
    columns = [Column([_dmy(d, mark)], d) for d in (ends, before)]
    when = f"Al {_es(ends)} comparativo con el ejercicio anterior"
    if doc != "balance_sheet":
        when = f"Por el período finalizado el {_es(ends)}, presentado en forma comparativa"
        columns = [Column([d[:4]], d) for d in (ends, before)] if month == 12 else columns
        if doc == "income_statement" and month in (6, 9):
            many = {6: "Seis", 9: "Nueve"}[month]
            columns = [Column([_dmy(d, ".")], d) for d in (ends, before, ends, before)]
            spans = [(f"{many} meses al", 0, 1), ("Tres meses al", 2, 3)]
    return Sheet(
        "argentina",
        "es",
        doc,
        org,
        title,
        "ARS",
        scale,
        [
            org,
            f"CUIT N° 30-{rng.randrange(10**7, 10**8)}-{rng.randrange(10)}",
            title,
            when,
            unit_line,
        ],
        columns,
        spans=spans,
        notes="" if beside else rng.choice(["Nota", "Notas", ""]),
        thousands=".",
        zero=rng.choice(["-", "—"]),
        lanes=2 if beside else 1,
        lane_cut="# PASIVO",
        page=WIDE if beside or spans else A4,
        size=7.5 if beside else 8.5,
        font=rng.choice(["Times-Roman", "Helvetica"]),
        upper_totals=rng.random() < 0.3,
        rotate=rng.choice([0, 0, 90]) if beside else 0,
        centered=rng.random() < 0.6,
        foot=[
            (
                "Las notas 1 a 15 y los anexos A a H que se acompañan son parte integrante de "
                "este estado."
            )
        ],
        prose=rng.choice([0, 0, 1]),
    )


def united_states(rng: Random) -> Sheet:
    """A 10-K or 10-Q: months ended over columns, detached dollar signs, earnings per share."""
    doc, year = rng.choice(KINDS), rng.randrange(2017, 2026)
    org = rng.choice(words("united_states")["orgs"])
    quarterly = rng.random() < 0.5
    month = rng.choice([3, 6, 9]) if quarterly else rng.choice([12, 12, 9, 6])
    now = _end(year, month)
    name = {
        "balance_sheet": "CONSOLIDATED BALANCE SHEETS",
        "income_statement": "CONSOLIDATED STATEMENTS OF OPERATIONS",
        "cash_flow": "CONSOLIDATED STATEMENTS OF CASH FLOWS",
    }[doc]
    title = f"CONDENSED {name}" if quarterly else name
    scale, unit_line = rng.choice(
        [
            (1_000_000, "(In millions, except share and per share amounts)"),
            (1000, "(In thousands, except per share data)"),
            (1000, "(Dollars in thousands)"),
            (
                1_000_000,
                (
                    "(In millions, except number of shares, which are reflected in thousands, "
                    "and per-share amounts)"
                ),
            ),
        ]
    )
    spans: list[tuple[str, int, int]] = []
    lines = [org, title]
    if doc == "balance_sheet":
        ends = [now, _end(year - 1, 12) if quarterly else _end(year - 1, month)]
        if rng.random() < 0.4 and ends[0][5:] == ends[1][5:]:
            lines.append(f"As of {_us(now)[:-6]}, {year} and {year - 1}")
            columns = [Column([e[:4]], e) for e in ends]
        else:
            columns = [Column([_us(e)[:-5], e[:4]], e) for e in ends]
    elif quarterly:
        span = {3: "Three", 6: "Six", 9: "Nine"}[month]
        ends = [now, _end(year - 1, month)]
        columns = [Column([e[:4]], e) for e in ends]
        spans = [(f"{span} Months Ended {_us(now)[:-6]},", 0, 1)]
        if month > 3 and doc == "income_statement":
            columns += [Column([e[:4]], e) for e in ends]
            spans = [
                (f"Three Months Ended {_us(now)[:-6]},", 0, 1),
                (f"{span} Months Ended {_us(now)[:-6]},", 2, 3),
            ]
    else:
        ends = [_end(year - i, month) for i in range(3)]
        exact = rng.random() < 0.4
        columns = [Column([_us(e)[:-5], e[:4]] if exact else [e[:4]], e) for e in ends]
        spans = [("Years ended" if exact else f"Years Ended {_us(now)[:-6]},", 0, 2)]
    lines += [unit_line] + (["(Unaudited)"] if quarterly else [])
    return Sheet(
        "united_states",
        "en",
        doc,
        org,
        title,
        "USD",
        scale,
        lines,
        columns,
        spans=spans,
        sign="$",
        sign_on=rng.choice(["totals", "totals", "all", "none"]),
        hang=True,
        zero=rng.choice(["—", "-"]),
        leaders=rng.random() < 0.3,
        font=rng.choice(["Times-Roman", "Helvetica"]),
        size=8.0 if len(columns) < 4 else 7.5,
        page=LETTER,
        centered=True,
        foot=["See accompanying Notes to Consolidated Financial Statements."],
        prose=rng.choice([0, 0, 1]),
        per_page=rng.choice([60, 60, 22]),
        continued="(Continued)",
        tight=rng.random() < 0.7,
    )


def united_kingdom(rng: Random) -> Sheet:
    """A plc: £m or £'000 under the year, Group and Company side by side, exceptional items."""
    doc, year = rng.choice(KINDS), rng.randrange(2017, 2026)
    org = rng.choice(words("united_kingdom")["orgs"])
    month = rng.choice([12, 3, 3, 9])
    ends = [_end(year, month), _end(year - 1, month)]
    if rng.random() < 0.2:
        ends.reverse()
    scale, unit, decimals = rng.choice(
        [
            (1_000_000, "£m", 1),
            (1_000_000, "£m", 0),
            (1000, "£'000", 0),
            (1000, "£000", 0),
            (1_000_000, "£ million", 0),
        ]
    )
    name = {
        "balance_sheet": rng.choice(["Balance sheet", "Statement of financial position"]),
        "income_statement": "Income statement",
        "cash_flow": "Cash flow statement",
    }[doc]
    title = rng.choice([f"Consolidated {name.lower()}", f"Group {name.lower()}", name])
    when = f"{'As at' if doc == 'balance_sheet' else 'For the year ended'} {_uk(_end(year, month))}"
    columns, spans = [Column([e[:4], unit], e) for e in ends], []
    shape = rng.random()
    if doc == "balance_sheet" and shape < 0.3:
        columns, spans = columns * 2, [("Group", 0, 1), ("Company", 2, 3)]
    elif doc == "income_statement" and shape < 0.3:
        columns = [
            Column([h, unit], e) for e in ends for h in ("Underlying", "Exceptional", "Total")
        ]
        spans = [(e[:4], 3 * i, 3 * i + 2) for i, e in enumerate(ends)]
    wide = len(columns) > 4
    return Sheet(
        "united_kingdom",
        "en",
        doc,
        org,
        title,
        "GBP",
        scale,
        rng.choice(
            [
                [title, when, org],
                [org, title, when],
                [org, f"(Registered number: 0{rng.randrange(10**6, 10**7)})", title, when],
            ]
        ),
        columns,
        spans=spans,
        notes=rng.choice(["Note", "Notes", "Notes", ""]),
        note_kind="en",
        decimals=decimals,
        zero=rng.choice(["–", "—", "-"]),
        hang=rng.random() < 0.5,
        font=rng.choice(["Helvetica", "Vera", "Times-Roman"]),
        size=7.0 if wide else 8.0,
        page=WIDE if wide else A4,
        sideways=wide and rng.random() < 0.4,
        prose=rng.choice([0, 0, 1]),
        foot=[
            (
                f"The financial statements were approved by the Board on {rng.randrange(2, 28)} "
                f"May {year + 1} and signed on its behalf by:"
            ),
            "The notes on pages 112 to 168 form part of these financial statements.",
        ],
    )


def management(rng: Random) -> Sheet:
    """A board pack: FY24 over up to five landscape columns, spaces or apostrophes in numbers."""
    doc, year = rng.choice(KINDS), rng.randrange(2019, 2026)
    country = rng.choice(["united_kingdom", "united_states"])
    org = rng.choice(words(country)["orgs"])
    month = rng.choice([12, 6, 9])
    years = [year - i for i in range(rng.randrange(3, 6))]
    years = years[::-1] if rng.random() < 0.5 else years
    heads = rng.choice(
        [
            lambda y: [f"FY{y % 100:02d}"],
            lambda y: [f"FY{y}"],
            lambda y: [f"FY {y}"],
            lambda y: [f"{ENGLISH[month - 1][:3]}-{y % 100:02d}"],
            lambda y: [f"FY{y % 100:02d}", "Actual"],
        ]
    )
    currency, scale, unit_line = rng.choice(
        [
            ("USD", 1000, "USD thousands"),
            ("EUR", 1000, "€ 000"),
            ("EUR", 1_000_000, "€ million"),
            ("CHF", 1000, "CHF thousand"),
            ("GBP", 1000, "£'000"),
            ("USD", 1_000_000, "US$ million"),
        ]
    )
    title = {
        "balance_sheet": "Balance Sheet",
        "income_statement": "Profit and Loss Account",
        "cash_flow": "Cash Flow Statement",
    }[doc]
    font = rng.choice(["Vera", "Helvetica"])
    columns = [Column(heads(y), _end(y, month)) for y in years]
    if rng.random() < 0.4:
        columns.append(Column(["Var %"], None, percent=True))
    return Sheet(
        country,
        "en",
        doc,
        org,
        title,
        currency,
        scale,
        [org, title, f"Financial years ended {monthrange(2023, month)[1]} {ENGLISH[month - 1]}"],
        columns,
        corner=unit_line,
        thousands=rng.choice([" ", "'", "’", ",", "\u00a0"]),
        negative=rng.choice(["minus", "true" if font == "Vera" else "dash", "parens"]),
        zero=rng.choice(["-", "–", "0"]),
        blanks=rng.choice([0.0, 0.04]),
        rotate=rng.choice([0, 0, 90, 270]),
        page=WIDE,
        size=rng.choice([7.0, 7.5]),
        font=font,
        rules=rng.random() < 0.6,
        pitch=1.4,
        foot=["Confidential - for discussion purposes only"],
        per_page=30,
        continued="(continued)",
        value_on=rng.choice(["last", "first"]),
    )


ORIGINS: dict[str, Callable[[Random], Sheet]] = {
    "chile": chile,
    "chile_small": chile_small,
    "mexico": mexico,
    "spain": spain,
    "argentina": argentina,
    "united_states": united_states,
    "united_kingdom": united_kingdom,
    "management": management,
}


def documents(count: int, seed: int = 31_337) -> Iterator[Statement]:
    """Yield statements of the eight origins in turn."""
    names = list(ORIGINS)
    for number in range(count):
        name = names[number % len(names)]
        rng = Random(f"outsiders-{seed}-{number}")  # another text makes other documents
        yield draw(f"corpus_a-{name}-{number}", ORIGINS[name](rng), rng)
