"""The currency and the scale of a statement."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from esclusa.pipelines.documents.local.plain_text import plain

_MILLIONS = re.compile(
    r"\bmm ?(?:us)?\$|\bmm[a-z]{3}\b|\bmd[pd]\b|\bm ?(?:eur|gbp|chf|sek|nok|dkk)\b|"
    r"\bm+ ?ch ?\$|\bmill(?:on(?:es)?|ions?)\b|\bmill\.|\bmm\b|\b(?:us\$|usd|gbp|eur|chf|"
    r"sek|nok|dkk|jpy|zar|cad|aud|nzd|sgd|cny|rmb|inr|brl|mxn|clp|cop|myr|s/\.?|"
    r"bs\.?) ?m(?:n|io)?\b|[$€£₡] ?m(?:n|io)?\b(?!\$)|\bmn\b|\br m\b|\bm ?€|\bmio\b"
)
_THOUSANDS = re.compile(
    r"\bmiles\b|\bthousands?\b|\bm ?(?:us|clp)? ?\$|\bmus\$|\bth ?(?:us|ch) ?\$|"
    r"(?<!\d)[’'‘]?000s?\b|(?:[$€£×]|\b(?:in|en|x|chf|usd|eur|gbp|sek|nok|"
    r"dkk)) ?1[’'‘ ]?000\b|\b[kt] ?[$€£]|\b[kt] ?(?:usd|eur|clp|gbp|chf)\b|(?:[$€£]|"
    r"\b(?:usd|eur|gbp|chf|sek|nok|dkk|pln|clp)) ?k\b|\bm ?clp\b|\(000"
)
# A thousand as a unit with a separator: `(EUR 1,000)`, `en 1.000 euros`.
_ONE_THOUSAND = re.compile(
    r"(?:[(×]|\b(?:in|en|x)\b|\A(?=[a-z]{3} )) ?(?:[a-z]{0,2}[$€£]|[a-z]{3})? ?1[.,]000(?:s|"
    r" (?:euros?|pesos|dolares|dollars|usd|eur|[$€£]))?(?=\)|,|\Z)"
)
_LONE_M = re.compile(r"\bm ?(?:usd|pen|cop|mxn|ars|uyu|bob|crc|gtq|dop|pyg|brl)\b")
# A scale that is named but ambiguous.
#
# `M USD` is thousands of dollars in Santiago and Lima, and millions in London and Stockholm.
AMBIGUOUS = 0
_OTHER_M_UNITS = re.compile(r"\bmm\b|\bmm ?(?:us|ch)?\$|\bmm[a-z]{3}\b|\bm ?(?:us)?\$")
_UNITS = re.compile(
    r"\b(?:en|unidad(?: monetaria)?:|moneda:) (?:pesos|dolares|euros|soles|unidades|"
    r"bolivianos|quetzales|colones|guaranies|lempiras|balboas)\b|"
    r"\bin (?:u\.?s\.? )?(?:dollars|euros|pesos|units|pounds)\b|\bwhole (?:dollars|units|pounds)\b"
)


@lru_cache(4096)
def scale_of(text: str) -> int | None:
    """Return the scale that a text names: 1, 1000, 1000000 or AMBIGUOUS (``M USD``); else None."""
    lowered = plain(text)
    if _MILLIONS.search(lowered):
        return 1_000_000
    if _ONE_THOUSAND.search(lowered) or (
        _THOUSANDS.search(lowered) and not re.search(r"\d[.,]000\b", lowered)
    ):
        return 1000
    if _LONE_M.search(lowered):
        return AMBIGUOUS
    return 1 if _UNITS.search(lowered) else None


def first_clear(*scales: int | None) -> int | None:
    """Return the first scale that is clear; AMBIGUOUS if only that is named, else None."""
    return next((scale for scale in scales if scale), AMBIGUOUS if AMBIGUOUS in scales else None)


def meaning_of_m(lines: list[str], *, spanish: bool) -> int:
    """Return the scale of a single ``M``.

    Thousands in a document that also writes ``MM`` or ``M$``, millions in English, else AMBIGUOUS.
    """
    if any(_OTHER_M_UNITS.search(plain(text)) for text in lines):
        return 1000
    return AMBIGUOUS if spanish else 1_000_000


_CURRENCY_PATTERNS: tuple[tuple[str, str], ...] = (
    ("USD", (r"\bus ?\$|\bu\$[sd]\b|\bu\.s\. ?dollars?|\bus dollars?|\b[kt]?usd\b|"
            r"dolares( estadounidenses| de los estados unidos)?|\bm+us\$|\bm+usd\b|\bmdd\b|"
            r"\bthus\$|\bdollars\b")),
    ("EUR", r"€|\beuros?\b|\b[mkt]?eur\b"),
    ("GBP", r"£|\bpounds?( sterling)?\b|\bgbp\b"),
    ("CHF", r"\bchf\b|\bswiss francs?\b|\bfrancos suizos\b"),
    ("BRL", r"\br\$|\breais\b|\bbrl\b"),
    ("PEN", r"\bs/\.?|\bsoles\b|\bpen\b"),
    ("CLF", r"\bunidades de fomento\b|\buf\b"),
    ("BOB", r"\bbolivianos\b|\bbob\b|\bbs\b\.?"),
    ("CRC", r"₡|¢|\bcolones\b|\bcrc\b"),
    ("PYG", r"₲|\bguaranies\b|\bpyg\b|\bgs\b\.?"),
    ("GTQ", r"\bquetzales\b|\bgtq\b|(?<![\w.])q(?![\w.])(?! ?\d\b)"),
    ("HNL", r"\blempiras\b|\bhnl\b|(?<![\w.])l(?![\w.])"),
    ("NIO", r"\bcordobas\b|\bnio\b"),
    ("PAB", r"\bbalboas\b|\bpab\b|b/\."),
    ("VES", r"\bbolivares\b|\bves\b"),
    ("DOP", r"pesos dominicanos|\bdop\b|rd\$"),
    ("UYU", r"pesos uruguayos|\buyu\b|\$u\b|\buruguay\b"),
    ("CAD", r"canadian dollars|\bcad\b"),
    ("AUD", r"australian dollars|\baud\b|\ba\$"),
    ("NZD", r"new zealand dollars|\bnzd\b|\bnz ?\$"),
    ("SGD", r"singapore dollars|\bsgd\b|\bs ?\$"),
    ("HKD", r"hong kong dollars|\bhkd\b|\bhk ?\$"),
    ("INR", r"₹|\brupees\b|\binr\b|\brs\b\.?"),
    ("JPY", r"¥|\byen\b|\bjpy\b"),
    ("CNY", r"\byuan\b|\brenminbi\b|\brmb\b|\bcny\b"),
    ("KRW", r"₩|\bkrw\b"),
    ("SEK", r"\b[mkt]?sek\b|swedish kron\w+"),
    ("NOK", r"\b[mkt]?nok\b|norwegian kron\w+"),
    ("DKK", r"\b[mkt]?dkk\b|danish kron\w+"),
    ("PLN", r"\bpln\b|\bzlot\w+|\bzł"),
    ("CZK", r"\bczk\b|\bkc\b|\bkorunas?\b"),
    ("RUB", r"₽|\brub\b|\broubles\b|\brubles\b"),
    ("UAH", r"₴|\buah\b|\bhryvnias?\b"),
    ("VND", r"₫|\bvnd\b"),
    ("TWD", r"\bnt ?\$|\btwd\b"),
    ("MYR", r"\bmyr\b|\bringgit\b|\brm ?[’'‘]?0{3}"),
    ("PHP", r"₱|\bphp\b|philippine pesos?"),
    ("IDR", r"\bidr\b|\brupiah\b"),
    ("THB", r"฿|\bthb\b|\bbaht\b"),
    ("ILS", r"₪|\bils\b|\bnis\b|\bshekels?\b"),
    ("TRY", r"₺|\bturkish liras?\b"),
    ("SAR", r"\bsar\b|\briyals?\b"),
    ("ZAR", r"\bzar\b|\brands?\b|\br ?[’'‘]0{3}|\br (?:m|millions?)\b"),
    ("KES", r"\bk(?:en)?shs?\b|\bkes\b|kenyan? shillings?"),
    ("NGN", r"₦|\bngn\b|\bnaira\b"),
    ("AED", r"\baed\b|\bdirhams?\b"),
    ("MXN", (r"pesos mexicanos|\bmdp\b|\bmxn\b|\bmx ?\$|moneda nacional|\bm\.n\.|\bde c\.? ?v\b\.?|"
            r"\bbanca multiple\b|\bmexico\b")),
    ("COP", r"pesos colombianos|\bcop\b|\bcol ?\$|\bnit\b|\bs\.a\.s\b|\bcolombia\b"),
    ("ARS", r"pesos argentinos|\bars\b|\bar ?\$|\bcuit\b|\bargentina\b"),
    ("CLP", r"pesos chilenos|\bclp\b|\bm+\$|\b(?:th|m+)? ?ch ?\$|\brut\b|\bchile\b|\bspa\b"),
)  # fmt: skip
# US dollars last: `US$` may stand beside the name of another currency.
_CURRENCIES = [
    (code, re.compile(pattern))
    for code, pattern in sorted(_CURRENCY_PATTERNS, key=lambda pair: pair[0] == "USD")
]
_CODE_AT_NUMBER = re.compile(r"\b([a-z]{3})(?=\d)")
# The longest line that states units, in characters; longer ones are sentences.
MAX_UNIT_LINE = 90
_PESOS = ("CLP", "MXN", "COP", "ARS", "UYU", "DOP")
_C_DOLLARS = re.compile(r"\bc ?\$")
_ABOUT_UNITS = re.compile(
    r"miles|millones|thousands|millions|expresad|expressed|moneda|currency|cifras|figures|"
    r"amounts|in (us|euro)|en (pesos|dolares|euros|soles)|unidad|000"
)


@lru_cache(4096)
def currency_of(text: str) -> str | None:
    """Return the currency that a text names."""
    lowered = _CODE_AT_NUMBER.sub(r"\1 ", plain(text))
    return next((code for code, pattern in _CURRENCIES if pattern.search(lowered)), None)


def document_currency(lines: list[str], *, spanish: bool, thousands: str = ".") -> str | None:
    """Return the document's currency by votes of its lines.

    Lines about units count most, signs beside numbers less. Which country's pesos, and what ``$``
    or ``C$`` is, follows from other lines, or else from the language and the separator of
    thousands.
    """
    votes: Counter[str] = Counter()
    unit_votes: Counter[str] = Counter()
    peso_votes = dollar_votes = 0
    for text in lines:
        lowered = plain(text)
        about_units = _ABOUT_UNITS.search(lowered) is not None
        weight = 5 if about_units else 1
        if (code := currency_of(text)) is not None:
            votes[code] += weight
            if about_units and len(lowered) < MAX_UNIT_LINE:
                unit_votes[code] += 1
        elif re.search(r"\bpesos\b", lowered):
            peso_votes += weight
        elif _C_DOLLARS.search(lowered):
            votes["NIO" if spanish else "CAD"] += weight
        elif "$" in lowered:
            dollar_votes += 1
    # A company's legal form in every header names its country, not the currency of its statements.
    if unit_votes["USD"] > unit_votes.total() / 2 and not peso_votes:
        return "USD"
    named = max(("MXN" if thousands == "," else "CLP", *_PESOS), key=lambda code: votes[code])
    if peso_votes:
        votes[named] += peso_votes
    if dollar_votes:
        votes[named if spanish or votes[named] else "USD"] += dollar_votes
    return votes.most_common(1)[0][0] if votes else None
