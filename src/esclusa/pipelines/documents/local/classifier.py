"""The class of a document: by its titles, or by the parts that only such a statement has."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from functools import lru_cache

from esclusa.pipelines.documents.local.lines import TextLine
from esclusa.pipelines.documents.local.periods import periods
from esclusa.pipelines.documents.local.plain_text import plain

_STATEMENT_ES = r"\b(?:estados?|cuentas?)(?: \w+){0,3} del?(?: l[oa]s?)?"
_STATEMENT_EN = r"\bstatements?(?: \w+){0,3} of(?: \w+){0,3}"
TITLES: dict[str, re.Pattern[str]] = {
    "changes_in_equity": re.compile(
        rf"{_STATEMENT_ES} (?:cambios|variaciones|evolucion|movimientos)(?: en| del?)(?: el| la)? "
        rf"(?:patrimonio|capital|fondos propios|cuentas? de(?:l)? (?:patrimonio|capital))\b|"
        rf"{_STATEMENT_EN} changes in(?: \w+){{0,2}} (?:equity|capital|shareholders|stockholders|"
        rf"members|partners)\b|\b(?:stockholders|shareholders|owners)['’]? equity statements?\b|"
        rf"{_STATEMENT_EN} (?:stockholders|shareholders|owners)['’]? equity\b"
    ),
    "trial_balance": re.compile(
        r"\bbalanza de comprobacion\b|\btrial balances?\b|\bbalances? (?:general )?tributario\b|"
        r"\bbalances? de (?:comprobacion|sumas|prueba|saldos|(?:8|ocho) columnas)\b|"
        r"\bsumas y saldos\b"
    ),
    "cash_flow": re.compile(
        rf"{_STATEMENT_ES} (?:flujos?|origen y aplicacion|cambios en la (?:situacion|"
        rf"posicion) financiera)\b|\bflujos? de (?:efectivo|caja|fondos)\b|"
        rf"\bcash[- ]?flows?\b|{_STATEMENT_EN} cash (?:receipts|movements)"
    ),
    "income_statement": re.compile(
        rf"{_STATEMENT_ES} (?:resultados?|ganancias|perdidas|ingresos|rendimientos?|"
        rf"actividades|excedentes?|explotacion|utilidades|gastos)\b|\bresultados? integral|"
        r"\b(?:income|earnings|operations|operating|profit (?:and|or|&) loss|p ?& ?l|"
        r"p and l|comprehensive income|revenue account) (?:statements?|accounts?)\b|"
        r"\bprofit (?:and|or|&) loss\b|\bp ?& ?l\b|"
        rf"{_STATEMENT_EN} (?:income|operations|earnings|profit|comprehensive|activities|"
        rf"revenues?|financial activities|financial performance|loss)|"
        rf"\bperdidas y ganancias\b|\bganancias y perdidas\b|\bincome and expenditure\b|\beerr\b"
    ),
    "balance_sheet": re.compile(
        rf"{_STATEMENT_ES} (?:situacion|posicion)\b|\bbalances? (?:generale?s?|"
        rf"clasificados?|consolidados?|de situacion|abreviados?|inicial|final|anual|patrimonial)\b|"
        rf"\bbalance sheets?\b|{_STATEMENT_EN} (?:financial )?(?:position|condition)\b|"
        rf"{_STATEMENT_EN} assets\b|\A\s*balances?\s*(?:\Z|al?\b|as (?:of|at)\b|at\b|[,–:(-])"
    ),
}
_OTHER_STATEMENTS = re.compile(
    rf"{_STATEMENT_ES} (?:cambios en el|evolucion)|{_STATEMENT_EN} changes|"
    rf"\bnotas? a los estados|\bnotes to the"
)
# The heading of a note to the statements: `Nota 7 - Inventarios`, `NOTE 12. Leases`.
_NOTE = re.compile(
    r"\s*(?:nota|note)\s*(?:n[°ºo]?\.?\s*)?\d{1,2}\s*[a-z]?\s*[-–—.:)]*\s+[^\W\d]", re.IGNORECASE
)
# Within the notes also without the word: `7. INVENTARIOS`.
_NUMBERED_NOTE = re.compile(r"\s*\d{1,2}\s*[-–—.)]+\s*[A-ZÁÉÍÓÚÑ][^\W\d]")
_NOTES = re.compile(r"\bnotas? a los estados|\bnotes to the(?: \w+){0,3} statements")
_OTHER_DOCUMENTS = re.compile(
    r"\A\W*(?:(?:nota|boleta|guia|orden|hoja|libro|lista|listado|catalogo|aviso|carta|acta|"
    r"contrato|comprobante|certificado|informe|detalle|resumen|estado|cartola|extracto|"
    r"liquidacion|recibo|cotizacion|presupuesto|factura|"
    r"planilla|nomina|remito|pedido|proforma|registro)s?\b(?: \w+){0,2} (?:de|del|por|a|"
    r"para)(?: la| el| los| las)? (?:precios|sueldos?|remuneraciones|nomina|haberes|pagos?|"
    r"cuentas?|cobranza|compras?|ventas? diarias?|despacho|entrega|credito|debito|"
    r"movimientos|transacciones|gastos de viaje|antiguedad|inventarios?|existencias|"
    r"honorarios|servicios|trabajo|personal)\b|"
    r"(?:facturas?|boletas?|cotizacion(?:es)?|cartolas?|nominas?|recibos?|remitos?|"
    r"proformas?|contratos?|tarifarios?|catalogos?)\b|"
    r"(?:tax |sales |commercial |proforma |pro forma )?invoices?\b|payslips?\b|"
    r"pay ?stubs?\b|payroll\b|price ?lists?\b|quot(?:e|ation)s?\b|receipts?\b|"
    r"purchase orders?\b|(?:bank|account|card) statements?\b|"
    r"statement of account\b|delivery notes?\b|packing lists?\b|(?:amortization|"
    r"amortisation|depreciation|rent|loan) (?:schedule|roll)\b|timesheets?\b|"
    r"aged? (?:receivables|payables|debtors|creditors)\b)"
)

_PARTS_OF_CLASS: dict[str, tuple[str, ...]] = {
    "balance_sheet": (
        r"\bactivos?\b|\bassets?\b",
        (
            r"\bpasivos?\b|\bliabilit(?:y|ies)\b|\bpayables?\b|\bproveedores\b|"
            r"\bcuentas por pagar\b|\bacreedores\b"
        ),
        (
            r"\bpatrimonio\b|\bcapital (?:contable|social|emitido|pagado)\b|\bequity\b|"
            r"\bretained earnings\b|\bfondos propios\b|\b(?:resultados|ganancias|"
            r"utilidades)[ \w()]* acumulad[oa]s\b|\bshare capital\b|\bnet assets\b"
        ),
    ),
    "income_statement": (
        (
            r"\bventas\b|\bingresos?\b|\brevenues?\b|\bsales\b|\bturnover\b|"
            r"\bcifra de negocios?\b|\bincome\b|\bfees\b"
        ),
        (
            r"\bcostos?\b|\bcostes?\b|\bgastos?\b|\bcosts?\b|\bexpenses?\b|\bdepreciacion\b|"
            r"\bdepreciation\b|\bpersonnel\b"
        ),
        (
            r"\b(?:ganancia|utilidad|resultado|margen|perdida|excedente|deficit|superavit|"
            r"beneficio)s?\b|\bgross (?:profit|margin)\b|\bnet (?:income|profit|loss|result|"
            r"earnings)\b|\boperating (?:income|profit|loss)\b|\bebit(?:da)?\b|"
            r"\b(?:profit|loss|income|earnings|surplus) (?:for|before|after|from)\b|\bper share\b"
        ),
    ),
    "cash_flow": (
        (
            r"\b(?:actividades|flujos?|procedentes?|utilizad[oa]s?)[ \w]* oper\w+|"
            r"\boperating activities\b|\bcash[ \w]* operations\b"
        ),
        (
            r"\b(?:actividades|flujos?|procedentes?|utilizad[oa]s?)[ \w]* inver\w+|"
            r"\binvesting activities\b|\bpurchases? of (?:property|equipment|fixed)"
        ),
        (
            r"\b(?:actividades|flujos?|procedentes?|utilizad[oa]s?)[ \w]* financ\w+|"
            r"\bfinancing activities\b|\bproceeds from\b"
        ),
        (
            r"\bnet (?:increase|decrease|change)[ \w()]* in cash\b|\b(?:incremento|disminucion|"
            r"aumento|variacion)[ \w()]* efectivo\b|\bcash[ \w]* (?:beginning|end)\b|"
            r"\befectivo[ \w]* (?:inicio|inicial|final|principio)\b|"
            r"\bsaldo (?:inicial|final)[ \w]* (?:caja|efectivo)\b"
        ),
    ),
}
_PART_PATTERNS = {
    name: [re.compile(part) for part in parts] for name, parts in _PARTS_OF_CLASS.items()
}
# Rows of numbers that make a table.
MIN_ROWS = 3
# Lines at the top of a page that may be its title.
_TITLE_LINES = 14


@lru_cache(4096)
def title_class(text: str) -> str | None:
    """Return the class that a text names, if it reads like the title of a statement."""
    lowered = plain(text)
    if len(lowered) > 140 or _NOTE.match(text):
        return None
    if TITLES["changes_in_equity"].search(lowered):
        return "changes_in_equity"
    if _OTHER_STATEMENTS.search(lowered):
        return None
    return next((name for name, pattern in TITLES.items() if pattern.search(lowered)), None)


def is_other_title(text: str) -> bool:
    """Return whether a text is the title of a statement that is not read."""
    return _OTHER_STATEMENTS.search(plain(text)) is not None


def note_heading(text: str, *, in_notes: bool) -> str | None:
    """Return the heading of a note, or of all notes; ``in_notes``: one has been seen before."""
    if len(text) > 110:
        return None
    found = _NOTE.match(text) or _NOTES.search(plain(text))
    if found or (in_notes and _NUMBERED_NOTE.match(text)):
        return _CONTINUED.sub("", text).strip(" :.")
    return None


def is_title_shaped(text: str) -> bool:
    """Return whether a text names a statement, and not a section or a row that uses its words."""
    lowered = plain(text).replace("patrimonio neto", "patrimonio")
    return _NOT_IN_TITLE.search(lowered) is None or _ACTIVITIES.search(lowered) is not None


_NOT_IN_TITLE = re.compile(
    r"\b(?:actividades|activities|net[oa]?|procedentes?|provided|used|utilizad\w+|from|"
    r"total|supplement\w+|disclosures?|complementari\w+)\b"
)
_ACTIVITIES = re.compile(
    r"\bestados?(?: \w+)? de(?: las)? actividades\Z|\bstatements? of(?: financial)? activities\Z"
)


_CONTINUED = re.compile(
    r"\s*[-–,]?\s*\(?\b(?:continuaci[oó]n|continued|cont(?:['’]d|in\.|\.)?)\)?\s*\Z", re.IGNORECASE
)
_INCOMPLETE = re.compile(r"\b(?:de|del|of|and|y|consolidado|consolidated)\Z")
_DATED = re.compile(
    r"(?:[\s,:(–-]|\b(?:al?|as|of|at|for|the|(?:\w+ )?(?:months?|weeks?|meses|semanas)|"
    r"years?|periods?|ended|ending|por|el|los|ejercicios?|a[ñn]os?|per[ií]odos?|"
    r"terminad[oa]s?|finalizad[oa]s?|del?|del? 1 de enero|desde|from|to)\b)+\Z",
    re.IGNORECASE,
)


def title_of(line: TextLine, following: TextLine | None) -> str | None:
    """Return the title of the statement in a line, or in a line and the next.

    The date is left out, and so is text that stands apart in the line.
    """
    text = next((run.text for run in line.runs if title_class(run.text)), line.text)
    pair = f"{text} {following.text}" if following is not None else text
    if title_class(text) is not None and is_title_shaped(_without_date(text)):
        return _without_date(pair if _INCOMPLETE.search(plain(text)) else text)
    return (
        _without_date(pair)
        if following is not None
        and title_class(following.text) is None
        and len(pair) < 120
        and title_class(pair) is not None
        and is_title_shaped(_without_date(pair))
        else None
    )


def _without_date(title: str) -> str:
    found = periods(title)
    name = _DATED.sub("", title[: found[0].start]) if found else title
    return _CONTINUED.sub("", name if title_class(name) is not None else title)


def first_table_page(lines: list[TextLine]) -> int | None:
    """Return the first page with several rows of numbers: reports may begin with letters."""
    rows = Counter(line.page for line in lines if len(line.cells) > 1 and line.has_later_amount)
    return min((page for page, count in rows.items() if count >= MIN_ROWS), default=None)


def classify(lines: list[TextLine]) -> tuple[str, float, dict[str, float]]:
    """Return the class of the document, its confidence, and the score of every class.

    Titles decide, the first more than later ones. Without a title the document is the statement of
    which it has most parts, if it has all of its parts. A document with another heading (an
    invoice, a bank statement) may name statements, but does not have all of their parts.
    """
    table = first_table_page(lines)
    rows = [line for line in lines if line.has_amount]
    titles = _titles(lines, table)
    parts = _parts(rows)
    scores = {name: round(titles.get(name, 0.0) + parts.get(name, 0.0), 2) for name in TITLES}
    best = max(scores, key=lambda name: scores[name])
    whole = best in parts and parts[best] == len(_PARTS_OF_CLASS[best])
    other = _is_other_document(lines, table)
    if len(rows) < 3 or (not titles and (other or not whole)) or (other and not whole):
        return "other", 0.6 if any(scores.values()) else 0.95, scores
    return best, round(min(0.99, 0.5 + 0.5 * scores[best] / sum(scores.values())), 3), scores


def _titles(lines: list[TextLine], table: int | None) -> dict[str, float]:
    """Return the scores of the titles; a title above the first rows counts most."""
    scores: dict[str, float] = defaultdict(float)
    rows = 0
    for number, line in enumerate(lines):
        rows += line.has_amount
        if line.is_prose or line.has_amount:
            continue
        following = (
            lines[number + 1]
            if number + 1 < len(lines) and lines[number + 1].page == line.page
            else None
        )
        found = title_class(line.text)
        if found is None and following is not None and title_class(following.text) is None:
            found = title_class(f"{line.text} {following.text}")
        if found is not None:
            on_top = (line.page == 0 and number < _TITLE_LINES and rows < MIN_ROWS) or (
                line.page == table and not rows
            )
            scores[found] += (30.0 if on_top else 4.0) * (1.0 if len(line.text) < 90 else 0.3)
    return scores


def _parts(rows: list[TextLine]) -> dict[str, float]:
    """Return how many parts of a statement of each class these rows have."""
    lowered = [plain(row.text) for row in rows]
    return {
        name: float(sum(any(part.search(text) for text in lowered) for part in parts))
        for name, parts in _PART_PATTERNS.items()
    }


def _is_other_document(lines: list[TextLine], table: int | None) -> bool:
    """Return whether the first heading above the rows names a document that is no statement."""
    for line in [line for line in lines if line.page == (table or 0)][:_TITLE_LINES]:
        if title_class(line.text) is not None or line.has_later_amount:
            return False
        if any(
            _OTHER_DOCUMENTS.search(plain(run.text)) or is_other_title(run.text)
            for run in line.runs
        ):
            return True
    return False
