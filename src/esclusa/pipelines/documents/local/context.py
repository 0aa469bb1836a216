# ruff: noqa: E501 - patterns are read as lists of words
"""What is said once and holds for many numbers: title, organisation, currency, scale, dates."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date
from itertools import dropwhile, takewhile, zip_longest

from esclusa.pipelines.documents.local.classes import is_other_title, title_class
from esclusa.pipelines.documents.local.furniture import is_month_end
from esclusa.pipelines.documents.local.lines import Line
from esclusa.pipelines.documents.local.money import scale_of
from esclusa.pipelines.documents.local.periods import Period, day_and_month, end_in, periods
from esclusa.pipelines.documents.local.texts import plain

_COMPANY = re.compile(
    r"\b(s\.? ?a\.?( ?b\.?)?( de c\.? ?v\.?)?|spa|s\.?p\.?a\.?|ltda\.?|limitada|e\.?i\.?r\.?l\.?|s\.? ?a\.? ?[cs]\.?|s\.? ?r?\.? ?l\.?u?\.?|s\.? de r\.? ?l\.?|inc\.?|llc|l\.l\.c\.|"
    r"ltd\.?|limited|corp\.?|corporation|company|co\.|plc|gmbh|ag|holdings?|group|grupo|compania|cia\.?|sociedad|empresas?|inversiones|(y|e) (filiales?|subsidiarias?)|"
    r"(and|&) subsidiar(y|ies)|banco|bank|cooperativa|coop\.?|fundacion|foundation|trust|municipio|municipalidad|ayuntamiento|universidad|university|asociacion|association|corporacion|council)(?=[\s,.)]|\Z)",
    re.IGNORECASE,
)
_FORM = re.compile(
    r"\b(?:SE|N\.?V\.?|B\.?V\.?|AB|ASA|A/S|Oyj?|KG|KGaA|CLG|Pty|Pte)\.?(?: \(publ\)| & Co\.?)?\Z"
)
"""Legal forms that are words in small letters."""
_NAMED = re.compile(
    r"\A(?:denominaci[oó]n|raz[oó]n|nombre)(?: social| de la (?:empresa|entidad|sociedad|compa[nñ][ií]a))?\s*:\s*|\A(?:empresa|entidad|sociedad|compa[nñ][ií]a|contribuyente|company(?: name)?|entity(?: name)?|name|client|from)\s*:\s*",
    re.IGNORECASE,
)
_BESIDE = re.compile(
    r"\s+[·|•]\s+|\s+[–—]\s+|\s+-\s+(?=\d|rut|nit|rfc|ruc|cuit|nif|cif)", re.IGNORECASE
)
"""What divides a name from what else stands in its line."""
_SENTENCE = re.compile(
    r"^(al|a|por|para|for|as|as of|at|expresad|cifras|en|in|\(|estados?|statements?|consolidated|years?|ejercicio|periodo|no auditad|unaudited|rut|nit|rfc|ruc|nif|"
    r"pagina|page|folio|notas?|nota|note|auditad|informe|report|memoria|annual|interim|currency|moneda|amounts?|figures|balance|miles|millones|valores|unidad|"
    r"clave|ticker|trimestre|quarter|giro|cif|cuit|registered|registro|direccion|address|sistema|programa|system|program|modulo|module|fecha|date|to|company (?:registration|registered|number|no))\b"
)
_REPORT = re.compile(
    r"\b(?:annual|interim|quarterly|half[- ]year|financial|management) (?:report|accounts|statements)|\bform \d|\b(?:memoria|informe|reporte|cuentas anuales|estados financieros)\b",
    re.IGNORECASE,
)
"""What a running head or foot says besides the name."""
_CLOSING = re.compile(
    r"\b(?:ended|ending|as (?:of|at)|al|terminad[oa]s?|finalizad[oa]s?|hasta|to|through|cierre|closing)\s+(?:on\s+|the\s+|el\s+|del?\s+|al\s+)?\Z"
)


@dataclass
class Context:
    """What holds below a title, until another one says otherwise."""

    title: str | None = None
    org: str | None = None
    currency: str | None = None
    scale: int | None = None
    dates: dict[int, date] = field(default_factory=dict)
    day: tuple[int, int] | None = None
    years: list[int] = field(default_factory=list)

    def learn_dates(self, text: str) -> None:
        """Dates from a title: ``Al 31 de diciembre de 2024 y 2023``. Those on which nothing closes, as of a meeting, are none."""
        found = closings(text)
        for one in found:
            if one.ends is not None:
                if (
                    not self.dates
                ):  # the first one after a title; what prose says later is about something else
                    self.day = (one.ends.month, one.ends.day)
                kept = self.dates.get(one.year)
                if kept is None or one.ends > kept:
                    self.dates[one.year] = one.ends
            if one.year not in self.years:
                self.years.append(one.year)
        if not found and not self.dates and (partial := day_and_month(text)):
            self.day = partial

    def end_of(self, year: int) -> date:
        """When a year ends that a heading only names."""
        return self.dates.get(year) or end_in(year, *(self.day or (12, 31)))

    @property
    def latest(self) -> date | None:
        """The end of the latest year that is told."""
        return self.end_of(max(self.years)) if self.years else None


def closings(text: str) -> list[Period]:
    """The periods of a title: from the first on that ends with a month, or of which it is said that it ends."""
    return list(dropwhile(lambda one: not _closes(text, one), periods(text)))


def _closes(text: str, one: Period) -> bool:
    return (
        one.ends is None
        or is_month_end(one)
        or _CLOSING.search(plain(text[: one.start])) is not None
    )


def is_spanish(text: str) -> bool:
    said = f" {plain(text)} "
    es = sum(
        said.count(w)
        for w in (
            " de ",
            " del ",
            " y ",
            " los ",
            " por ",
            " en ",
            " la ",
            " al ",
            " ventas ",
            " activo ",
            " gastos ",
        )
    )
    en = sum(
        said.count(w)
        for w in (
            " of ",
            " the ",
            " and ",
            " for ",
            " in ",
            " at ",
            " to ",
            " cash ",
            " assets ",
            " net ",
            " sales ",
        )
    )
    return es >= en


def org_of(lines: list[Line], around: list[Line]) -> tuple[str, Line] | None:
    """The organisation's name: what a form says it is, a line near the top that names a company, or one in the margins ``around``, else the
    first one that is no title, date or unit."""
    above = takewhile(lambda line: not _is_row(line), lines)
    top = [(_first_part(line), line) for line in above if not line.prose][:14]
    top = [
        (text, line)
        for text, line in top
        if 3 <= len(text) <= 110 and sum(ch.isalpha() for ch in text) >= 3
    ]
    top = [
        (f"{_begun(before, line)}{text}", line)
        for before, (text, line) in zip([None, *(line for _, line in top)], top, strict=False)
    ]
    for (text, line), below in zip_longest(top, top[1:]):
        if named := _NAMED.match(text):
            if named.end() < len(text):
                return text[named.end() :], line
            if below is not None and abs(below[1].x0 - line.x0) < line.height:
                return below
    plausible = [(text, line) for text, line in top if _says_nothing_else(text)]
    running = [(_REPORT.split(_first_part(line))[0].strip(" -–—|·,"), line) for line in around]
    companies = [one for one in plausible if _is_company(one[0])]
    companies += [
        (text, line)
        for text, line in running
        if _is_company(text) and _says_nothing_else(text) and text[0].isupper()
    ]
    return next(iter(companies), None) or next((one for one in plausible if _may_name(*one)), None)


def _says_nothing_else(text: str) -> bool:
    """Whether it is no title and no sentence about dates, units or the paper itself."""
    return (
        title_class(text) is None
        and not is_other_title(text)
        and _SENTENCE.search(plain(text)) is None
    )


def _is_company(text: str) -> bool:
    return _COMPANY.search(plain(text)) is not None or _FORM.search(text) is not None


def _may_name(text: str, line: Line) -> bool:
    """Whether a line that names no kind of company may be a name: no date, unit or number of a register, no list of chapters."""
    return (
        not periods(text)
        and scale_of(text) is None
        and re.search(r"\d{5}", text) is None
        and len(line.runs) < 3
    )


def _begun(before: Line | None, line: Line) -> str:
    """The first line of a name that wraps in the same large letters: ``Kestrel Building / Products Limited``."""
    if (
        before is None
        or len(line.words) > 2
        or not _is_company(line.text)
        or _SENTENCE.search(plain(before.text))
    ):
        return ""
    alike = (
        abs(before.height - line.height) < 0.05 * line.height
        and abs(before.x0 - line.x0) < line.height
    )
    close = before.page == line.page and 0 < line.base - before.base < 1.6 * line.height
    return (
        f"{before.text} "
        if alike and close and title_class(before.text) is None and not _is_company(before.text)
        else ""
    )


def _first_part(line: Line) -> str:
    """What a line says before anything that stands apart in it."""
    return _BESIDE.split(line.runs[0].text.strip())[0].strip(" ,·|")


def _is_row(line: Line) -> bool:
    return any(c.kind == "amount" and c.free for c in line.cells[1:])
