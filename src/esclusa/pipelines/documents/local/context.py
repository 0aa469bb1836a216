# ruff: noqa: E501, ISC004 - patterns are read as lists of words
"""What is said once and holds for many numbers: statement, organisation, currency, scale, dates."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache

from esclusa.pipelines.documents.local.lines import Line
from esclusa.pipelines.documents.local.periods import day_and_month, periods

TITLES: tuple[tuple[str, str], ...] = (
    ("cash_flow", r"\bestados?( \w+){0,3} de( los)? flujos?\b|\bflujos? de (efectivo|caja)\b|\bcash[- ]?flows?\b|\bestados? de origen y aplicacion"),
    ("income_statement", r"\bestados?( \w+){0,3} (de|del) (resultados?|ganancias|perdidas|ingresos|rendimiento)|\bcuentas? de (resultados|perdidas)|"
     r"\b(income|earnings|operations|profit (and|or|&) loss|comprehensive income) statements?\b|\bprofit and loss( account)?\b|"
     r"\bstatements?( \w+){0,3} of( \w+){0,3} (income|operations|earnings|profit|comprehensive)|\bestado de perdidas y ganancias|\bp&l\b"),
    ("balance_sheet", r"\bestados?( \w+){0,3} (de|del) (situacion|posicion)( financiera| patrimonial)?|\bbalances? (generale?s?|clasificados?|consolidados?|de situacion)|"
     r"\bbalance sheets?\b|\bstatements?( \w+){0,3} of( \w+){0,3} (financial )?(position|condition)|^\s*balance\b"),
)  # fmt: skip
_OTHER_TITLES = r"\bestados?( \w+){0,3} de cambios|\bstatements?( \w+){0,3} of( \w+){0,3} changes|\bnotas? a los estados|\bnotes to the"

WORDS: dict[str, str] = {
    "balance_sheet": r"activos?|pasivos?|patrimonio|capital contable|assets?|liabilit(?:y|ies)|equity|inventarios?|existencias|inventor(?:y|ies)|cuentas por "
    r"(?:cobrar|pagar)|(?:accounts|trade)[ \w]* (?:receivable|payable)s?|deudores|proveedores|propiedades?,? planta|property,? plant|goodwill|plusvalia|retained earnings|"
    r"(?:resultados|ganancias)[ \w()]* acumulad[oa]s",
    "income_statement": r"ventas|costos? de (?:las )?ventas?|ganancia bruta|utilidad|margen|ingresos?|gastos?|revenues?|cost of (?:sales|goods|revenue)|gross "
    r"(?:profit|margin)|expenses?|net (?:income|profit|loss)|ebitda|impuestos? (?:a|sobre) (?:las?|la) (?:ganancias?|renta)|income tax|operating (?:income|profit)|"
    r"por accion|per share",
    "cash_flow": r"(?:actividades de|procedentes? de|utilizad[oa]s? en)[ \w]*(?:operacion|inversion|financ)\w*|(?:operating|investing|financing) activities|"
    r"net (?:increase|decrease|change) in cash|(?:incremento|disminucion|aumento|variacion)[ \w()]* (?:de|en|del)? ?(?:el )?efectivo|"
    r"cash and cash equivalents at|efectivo (?:y equivalentes )?[ \w]*(?:inicio|final|principio)|cobros procedentes|pagos a",
}
_COMPANY = re.compile(
    r"\b(s\.? ?a\.?( ?b\.?)?( de c\.? ?v\.?)?|spa|s\.?p\.?a\.?|ltda\.?|limitada|e\.?i\.?r\.?l\.?|s\.? ?a\.? ?c\.?|s\.? ?r\.? ?l\.?|s\.? de r\.? ?l\.?|inc\.?|llc|l\.l\.c\.|"
    r"ltd\.?|limited|corp\.?|corporation|company|co\.|plc|gmbh|holdings?|group|grupo|compania|sociedad|empresas?|inversiones|(y|e) (filiales?|subsidiarias?)|"
    r"(and|&) subsidiar(y|ies)|banco|bank|cooperativa|fundacion|foundation)(?=[\s,.)]|\Z)",
    re.IGNORECASE,
)
_SENTENCE = re.compile(
    r"^(al|a|por|para|for|as|as of|at|expresad|cifras|en|in|\(|estados?|statements?|consolidated|years?|ejercicio|periodo|no auditad|unaudited|rut|nit|rfc|"
    r"pagina|page|folio|notas?|nota|note|auditad|informe|report|currency|moneda|amounts?|figures|balance|miles|millones|"
    r"clave|ticker|trimestre|quarter|giro|cif|cuit|registered|registro|direccion|address)\b"
)


@dataclass
class Context:
    """What holds below a title, until another one says otherwise."""

    title: str | None = None
    doc_type: str | None = None
    org: str | None = None
    currency: str | None = None
    scale: int | None = None
    dates: dict[int, date] = field(default_factory=dict)
    day: tuple[int, int] | None = None
    years: list[int] = field(default_factory=list)

    def learn_dates(self, text: str) -> None:
        """Dates from a title: ``Al 31 de diciembre de 2024 y 2023``."""
        found = list(periods(text))
        for one in found:
            if one.ends is not None:
                if not self.dates:  # the first one after a title; what prose says later is about something else
                    self.day = (one.ends.month, one.ends.day)
                kept = self.dates.get(one.year)
                if kept is None or one.ends > kept:
                    self.dates[one.year] = one.ends
            if one.year not in self.years:
                self.years.append(one.year)
        if not found and not self.dates and (partial := day_and_month(text)):
            self.day = partial


@lru_cache(8192)
def plain(text: str) -> str:
    """Lower case, without accents."""
    if text.isascii():
        return text.lower()
    return "".join(ch for ch in unicodedata.normalize("NFKD", text.lower()) if not unicodedata.combining(ch))


@lru_cache(4096)
def title_class(text: str) -> str | None:
    """The class that a line's words name, if it reads like a statement's title."""
    said = plain(text)
    if len(said) > 140 or re.search(_OTHER_TITLES, said):
        return None
    return next((name for name, pattern in TITLES if re.search(pattern, said)), None)


def is_other_title(text: str) -> bool:
    return re.search(_OTHER_TITLES, plain(text)) is not None


@lru_cache(4096)
def scale_of(text: str) -> int | None:
    """1000 or 1000000 where a text says so; 1 where it says units."""
    said = plain(text)
    if re.search(r"\bmm ?(us)?\$|\bmill(on(es)?|ions?)\b|\bmm\b|\bus\$ ?m\b|[$€£] ?m\b(?!\$)|\bmn\b", said):
        return 1_000_000
    if re.search(
        r"\bmiles\b|\bthousands?\b|\bm ?(us|clp)? ?\$|\bmus\$|\bthus\$|\bth ?us ?\$|[’'‘]?000s?\b(?<![\d.,]0000)|\bk\$|\bmclp\b|\bkusd\b|\(000",
        said,
    ) and not re.search(r"\d[.,]000\b", said):
        return 1000
    if re.search(
        r"\ben (pesos|dolares|euros|soles|unidades)\b|\bin (u\.?s\.? )?(dollars|euros|pesos|units)\b|\bwhole (dollars|units)\b", said
    ):
        return 1
    return None


_CURRENCIES: tuple[tuple[str, str], ...] = (
    ("USD", r"\bus ?\$|\bu\.s\. ?dollars?|\bus dollars?|\busd\b|dolares( estadounidenses| de los estados unidos)?|\bm+us\$|\bthus\$|\bdollars\b"),
    ("EUR", r"€|\beuros?\b|\beur\b"),
    ("GBP", r"£|\bpounds? sterling\b|\bgbp\b"),
    ("CHF", r"\bchf\b|\bswiss francs?\b|\bfrancos suizos\b"),
    ("BRL", r"\br\$|\breais\b|\bbrl\b"),
    ("PEN", r"\bs/\.?|\bsoles\b|\bpen\b"),
    ("CLF", r"\bunidades de fomento\b|\buf\b"),
    ("MXN", r"pesos mexicanos|\bmxn\b|moneda nacional|\bm\.n\.|\bde c\.? ?v\b\.?|\bmexico\b"),
    ("COP", r"pesos colombianos|\bcop\b|\bnit\b|\bs\.a\.s\b|\bcolombia\b"),
    ("ARS", r"pesos argentinos|\bars\b|\bcuit\b|\bargentina\b"),
    ("CLP", r"pesos chilenos|\bclp\b|\bm+\$|\brut\b|\bchile\b|\bspa\b"),
)  # fmt: skip


@lru_cache(4096)
def currency_of(text: str) -> str | None:
    """The currency that a text names."""
    said = plain(text)
    return next((code for code, pattern in _CURRENCIES if re.search(pattern, said)), None)


def currency_by_votes(lines: list[str], *, spanish: bool) -> str | None:
    """The document's currency: words about units count most, signs beside numbers less. Which ``pesos``, and what ``$`` is, other
    words of the document say, else its language."""
    votes: Counter[str] = Counter()
    pesos = dollars = 0
    for text in lines:
        said = plain(text)
        weight = (
            5
            if re.search(
                r"miles|millones|thousands|millions|expresad|expressed|moneda|currency|cifras|figures|amounts|in (us|euro)|en (pesos|dolares|euros|soles)|000",
                said,
            )
            else 1
        )
        code = currency_of(text)
        if code is not None:
            votes[code] += weight
        elif re.search(r"\bpesos\b", said):
            pesos += weight
        elif re.search(r"\$", said):
            dollars += 1
    named = max(("CLP", "MXN", "COP", "ARS"), key=lambda code: votes[code])
    if pesos:
        votes[named] += pesos
    if dollars:
        votes[named if spanish or votes[named] else "USD"] += dollars
    if not votes:
        return None
    return votes.most_common(1)[0][0]


def is_spanish(text: str) -> bool:
    said = f" {plain(text)} "
    es = sum(said.count(w) for w in (" de ", " del ", " y ", " los ", " por ", " en ", " la ", " al "))
    en = sum(said.count(w) for w in (" of ", " the ", " and ", " for ", " in ", " at ", " to "))
    return es >= en


def org_of(lines: list[Line]) -> tuple[str, Line] | None:
    """The organisation's name: a line near the top that names a company, else the first one that is no title, date or unit."""
    fallback = None
    for line in [line for line in lines if not line.prose][:14]:
        text = line.text.strip()
        said = plain(text)
        if not 3 <= len(text) <= 110 or sum(ch.isalpha() for ch in text) < 3 or any(c.kind == "amount" and c.free for c in line.cells[1:]):
            continue
        titled = title_class(text) is not None
        if not titled and not _SENTENCE.search(said) and _COMPANY.search(said):
            return text, line
        if fallback is None and not titled and not _SENTENCE.search(said) and not list(periods(text)) and scale_of(text) is None:
            fallback = text, line
    return fallback


def first_table(lines: list[Line]) -> int | None:
    """The first page with several rows of numbers: a report may begin with letters and opinions."""
    rows = Counter(line.page for line in lines if len(line.cells) > 1 and any(c.kind == "amount" and c.free for c in line.cells[1:]))
    return min((page for page, count in rows.items() if count >= 3), default=None)


def classify(lines: list[Line]) -> tuple[str, float, dict[str, float]]:
    """The document's class, how sure that is, and every class's score: titles weigh most, and the first page's more."""
    scores = dict.fromkeys(WORDS, 0.0)
    rows = 0
    table = first_table(lines)
    for number, line in enumerate(lines):
        text = line.text
        numbers = sum(c.kind == "amount" and c.free for c in line.cells)
        rows += numbers > 0
        found = title_class(text) if not line.prose else None
        if found is None and not line.prose and number + 1 < len(lines) and lines[number + 1].page == line.page and numbers == 0:
            found = title_class(f"{text} {lines[number + 1].text}") if title_class(lines[number + 1].text) is None else None
        if found is not None and numbers == 0:
            on_top = (line.page == 0 and number < 14) or (line.page == table and not rows)
            scores[found] += (30.0 if on_top else 4.0) * (1.0 if len(text) < 90 else 0.3)
        if numbers:
            said = plain(text)
            for name, pattern in WORDS.items():
                if re.search(rf"\b(?:{pattern})\b", said):
                    scores[name] += 0.6
    best = max(scores, key=lambda name: scores[name])
    total = sum(scores.values())
    if rows < 3 or scores[best] < 2.0:
        return "other", 0.6 if total else 0.95, scores
    return best, round(min(0.99, 0.5 + 0.5 * scores[best] / total), 3), scores
