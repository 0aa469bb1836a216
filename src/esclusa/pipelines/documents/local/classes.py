# ruff: noqa: E501, ISC004 - patterns are read as lists of words
"""Which statement a document is: by its title, else by what only such a statement adds up."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from functools import lru_cache

from esclusa.pipelines.documents.local.lines import Line
from esclusa.pipelines.documents.local.periods import periods
from esclusa.pipelines.documents.local.texts import plain

_STATE = r"\b(?:estados?|cuentas?)(?: \w+){0,3} del?(?: l[oa]s?)?"
_OF = r"\bstatements?(?: \w+){0,3} of(?: \w+){0,3}"
TITLES: dict[str, re.Pattern[str]] = {
    "cash_flow": re.compile(
        rf"{_STATE} (?:flujos?|origen y aplicacion|cambios en la (?:situacion|posicion) financiera)\b|\bflujos? de (?:efectivo|caja|fondos)\b|\bcash[- ]?flows?\b|{_OF} cash (?:receipts|movements)"
    ),
    "income_statement": re.compile(
        rf"{_STATE} (?:resultados?|ganancias|perdidas|ingresos|rendimientos?|actividades|excedentes?|explotacion|utilidades|gastos)\b|\bresultados? integral|"
        r"\b(?:income|earnings|operations|operating|profit (?:and|or|&) loss|p ?& ?l|p and l|comprehensive income|revenue account) (?:statements?|accounts?)\b|\bprofit (?:and|or|&) loss\b|\bp ?& ?l\b|"
        rf"{_OF} (?:income|operations|earnings|profit|comprehensive|activities|revenues?|financial activities|financial performance|loss)|\bperdidas y ganancias\b|\bganancias y perdidas\b|\bincome and expenditure\b|\beerr\b"
    ),
    "balance_sheet": re.compile(
        rf"{_STATE} (?:situacion|posicion)\b|\bbalances? (?:generale?s?|clasificados?|consolidados?|de situacion|abreviados?|inicial|final|anual|patrimonial)\b|"
        rf"\bbalance sheets?\b|{_OF} (?:financial )?(?:position|condition)\b|{_OF} assets\b|\A\s*balances?\s*(?:\Z|al?\b|as (?:of|at)\b|at\b|[,–:(-])"
    ),
}  # fmt: skip
_OTHER_STATEMENTS = re.compile(
    rf"{_STATE} (?:cambios en el|evolucion)|{_OF} changes|\bnotas? a los estados|\bnotes to the|\btrial balance\b|\bbalances? de (?:comprobacion|sumas|prueba|saldos)|\bbalance tributario\b"
)
_OTHER_PAPERS = re.compile(
    r"\A\W*(?:(?:nota|boleta|guia|orden|hoja|libro|lista|listado|catalogo|aviso|carta|acta|contrato|comprobante|certificado|informe|detalle|resumen|estado|cartola|extracto|liquidacion|recibo|cotizacion|presupuesto|factura|"
    r"planilla|nomina|remito|pedido|proforma|registro)s?\b(?: \w+){0,2} (?:de|del|por|a|para)(?: la| el| los| las)? (?:precios|sueldos?|remuneraciones|nomina|haberes|pagos?|cuentas?|cobranza|compras?|ventas? diarias?|despacho|entrega|credito|debito|"
    r"movimientos|transacciones|gastos de viaje|antiguedad|inventarios?|existencias|honorarios|servicios|trabajo|personal)\b|"
    r"(?:facturas?|boletas?|cotizacion(?:es)?|cartolas?|nominas?|recibos?|remitos?|proformas?|contratos?|tarifarios?|catalogos?)\b|"
    r"(?:tax |sales |commercial |proforma |pro forma )?invoices?\b|payslips?\b|pay ?stubs?\b|payroll\b|price ?lists?\b|quot(?:e|ation)s?\b|receipts?\b|purchase orders?\b|(?:bank|account|card) statements?\b|"
    r"statement of account\b|delivery notes?\b|packing lists?\b|(?:amortization|amortisation|depreciation|rent|loan) (?:schedule|roll)\b|timesheets?\b|aged? (?:receivables|payables|debtors|creditors)\b)"
)

_PARTS: dict[str, tuple[str, ...]] = {
    "balance_sheet": (
        r"\bactivos?\b|\bassets?\b",
        r"\bpasivos?\b|\bliabilit(?:y|ies)\b|\bpayables?\b|\bproveedores\b|\bcuentas por pagar\b|\bacreedores\b",
        r"\bpatrimonio\b|\bcapital (?:contable|social|emitido|pagado)\b|\bequity\b|\bretained earnings\b|\bfondos propios\b|\b(?:resultados|ganancias|utilidades)[ \w()]* acumulad[oa]s\b|\bshare capital\b|\bnet assets\b",
    ),
    "income_statement": (
        r"\bventas\b|\bingresos?\b|\brevenues?\b|\bsales\b|\bturnover\b|\bcifra de negocios?\b|\bincome\b|\bfees\b",
        r"\bcostos?\b|\bcostes?\b|\bgastos?\b|\bcosts?\b|\bexpenses?\b|\bdepreciacion\b|\bdepreciation\b|\bpersonnel\b",
        r"\b(?:ganancia|utilidad|resultado|margen|perdida|excedente|deficit|superavit|beneficio)s?\b|\bgross (?:profit|margin)\b|\bnet (?:income|profit|loss|result|earnings)\b|\boperating (?:income|profit|loss)\b|\bebit(?:da)?\b|"
        r"\b(?:profit|loss|income|earnings|surplus) (?:for|before|after|from)\b|\bper share\b",
    ),
    "cash_flow": (
        r"\b(?:actividades|flujos?|procedentes?|utilizad[oa]s?)[ \w]* oper\w+|\boperating activities\b|\bcash[ \w]* operations\b",
        r"\b(?:actividades|flujos?|procedentes?|utilizad[oa]s?)[ \w]* inver\w+|\binvesting activities\b|\bpurchases? of (?:property|equipment|fixed)",
        r"\b(?:actividades|flujos?|procedentes?|utilizad[oa]s?)[ \w]* financ\w+|\bfinancing activities\b|\bproceeds from\b",
        r"\bnet (?:increase|decrease|change)[ \w()]* in cash\b|\b(?:incremento|disminucion|aumento|variacion)[ \w()]* efectivo\b|\bcash[ \w]* (?:beginning|end)\b|\befectivo[ \w]* (?:inicio|inicial|final|principio)\b|"
        r"\bsaldo (?:inicial|final)[ \w]* (?:caja|efectivo)\b",
    ),
}  # fmt: skip
_ALL_PARTS = {name: [re.compile(part) for part in parts] for name, parts in _PARTS.items()}
ROWS = 3
"""Rows of numbers that make a table."""
_TOP = 14
"""Lines of a page among which its title stands."""


@lru_cache(4096)
def title_class(text: str) -> str | None:
    """The class that a line's words name, if it reads like a statement's title."""
    said = plain(text)
    if len(said) > 140 or _OTHER_STATEMENTS.search(said):
        return None
    return next((name for name, pattern in TITLES.items() if pattern.search(said)), None)


def is_other_title(text: str) -> bool:
    return _OTHER_STATEMENTS.search(plain(text)) is not None


def title_shape(text: str) -> bool:
    """A title names the statement; a section or a row that only uses its words says more."""
    said = plain(text)
    return _NO_TITLE.search(said) is None or _ACTIVITIES.search(said) is not None


_NO_TITLE = re.compile(
    r"\b(?:actividades|activities|net[oa]?|procedentes?|provided|used|utilizad\w+|from|total|supplement\w+|disclosures?|complementari\w+)\b"
)
_ACTIVITIES = re.compile(
    r"\bestados?(?: \w+)? de(?: las)? actividades\Z|\bstatements? of(?: financial)? activities\Z"
)


_CONTINUED = re.compile(
    r"\s*[-–,]?\s*\(?\b(?:continuaci[oó]n|continued|cont(?:['’]d|in\.|\.)?)\)?\s*\Z", re.IGNORECASE
)
_GOES_ON = re.compile(r"\b(?:de|del|of|and|y|consolidado|consolidated)\Z")
_DATED = re.compile(
    r"(?:[\s,:(–-]|\b(?:al?|as|of|at|for|the|(?:\w+ )?(?:months?|weeks?|meses|semanas)|years?|periods?|ended|ending|por|el|los|ejercicios?|a[ñn]os?|per[ií]odos?|terminad[oa]s?|finalizad[oa]s?|del?|del? 1 de enero|desde|from|to)\b)+\Z",
    re.IGNORECASE,
)


def title_of(line: Line, following: Line | None) -> str | None:
    """The statement's title, if a line (with the next one) has one: without its date, and without what stands apart in the line."""
    text = next((run.text for run in line.runs if title_class(run.text)), line.text)
    pair = f"{text} {following.text}" if following is not None else text
    if title_class(text) is not None and title_shape(_undated(text)):
        return _undated(pair if _GOES_ON.search(plain(text)) else text)
    alone = following is None or title_class(following.text) is not None
    return (
        _undated(pair)
        if not alone
        and len(pair) < 120
        and title_class(pair) is not None
        and title_shape(_undated(pair))
        else None
    )


def _undated(title: str) -> str:
    found = periods(title)
    name = _DATED.sub("", title[: found[0].start]) if found else title
    return _CONTINUED.sub("", name if title_class(name) is not None else title)


def first_table(lines: list[Line]) -> int | None:
    """The first page with several rows of numbers: a report may begin with letters and opinions."""
    rows = Counter(
        line.page
        for line in lines
        if len(line.cells) > 1 and any(c.kind == "amount" and c.free for c in line.cells[1:])
    )
    return min((page for page, count in rows.items() if count >= ROWS), default=None)


def classify(lines: list[Line]) -> tuple[str, float, dict[str, float]]:
    """The document's class, how sure that is, and every class's score.

    A title decides, the first one more than later ones. Without any, a document is the statement of which it has most parts, if it has
    all that make one. A paper whose heading says that it is something else (an invoice, a bank statement) may name statements, but has
    not all of their parts.
    """
    table = first_table(lines)
    rows = [line for line in lines if any(c.kind == "amount" and c.free for c in line.cells)]
    titles = _titles(lines, table)
    parts = _parts(rows)
    scores = {name: round(titles.get(name, 0.0) + parts[name], 2) for name in TITLES}
    best = max(scores, key=lambda name: scores[name])
    whole = parts[best] == len(_PARTS[best])
    other = _is_other_paper(lines, table)
    if len(rows) < 3 or (not titles and (other or not whole)) or (other and not whole):
        return "other", 0.6 if any(scores.values()) else 0.95, scores
    return best, round(min(0.99, 0.5 + 0.5 * scores[best] / sum(scores.values())), 3), scores


def _titles(lines: list[Line], table: int | None) -> dict[str, float]:
    """What the titles say: one above the first rows counts most."""
    scores: dict[str, float] = defaultdict(float)
    rows = 0
    for number, line in enumerate(lines):
        rows += any(c.kind == "amount" and c.free for c in line.cells)
        if line.prose or any(c.kind == "amount" and c.free for c in line.cells):
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
            on_top = (line.page == 0 and number < _TOP and rows < ROWS) or (
                line.page == table and not rows
            )
            scores[found] += (30.0 if on_top else 4.0) * (1.0 if len(line.text) < 90 else 0.3)
    return scores


def _parts(rows: list[Line]) -> dict[str, float]:
    """How many of its parts a statement of each class would have in these rows."""
    said = [plain(row.text) for row in rows]
    return {
        name: float(sum(any(part.search(text) for text in said) for part in parts))
        for name, parts in _ALL_PARTS.items()
    }


def _is_other_paper(lines: list[Line], table: int | None) -> bool:
    """Whether the first thing that stands above the rows and names a paper names another one than a statement."""
    for line in [line for line in lines if line.page == (table or 0)][:_TOP]:
        if title_class(line.text) is not None or any(
            c.kind == "amount" and c.free for c in line.cells[1:]
        ):
            return False
        if any(
            _OTHER_PAPERS.search(plain(run.text)) or is_other_title(run.text) for run in line.runs
        ):
            return True
    return False
