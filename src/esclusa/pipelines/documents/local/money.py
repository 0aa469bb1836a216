# ruff: noqa: E501 - patterns are read as lists of words
"""In what a statement counts: its currency and its scale."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from esclusa.pipelines.documents.local.texts import plain

_MILLIONS = re.compile(
    r"\bmm ?(?:us)?\$|\bmm[a-z]{3}\b|\bmd[pd]\b|\bm ?(?:eur|gbp|chf|sek|nok|dkk)\b|\bm+ ?ch ?\$|\bmill(?:on(?:es)?|ions?)\b|\bmill\.|\bmm\b|\b(?:us\$|usd|gbp|eur|chf|sek|nok|dkk|jpy|zar|cad|aud|nzd|sgd|cny|rmb|inr|brl|mxn|clp|cop|myr|s/\.?|bs\.?) ?m(?:n|io)?\b|[$€£₡] ?m(?:n|io)?\b(?!\$)|\bmn\b|\br m\b|\bm ?€|\bmio\b"
)
_THOUSANDS = re.compile(
    r"\bmiles\b|\bthousands?\b|\bm ?(?:us|clp)? ?\$|\bmus\$|\bth ?(?:us|ch) ?\$|(?<!\d)[’'‘]?000s?\b|(?:[$€£×]|\b(?:in|en|x|chf|usd|eur|gbp|sek|nok|dkk)) ?1[’'‘ ]?000\b|\b[kt] ?[$€£]|\b[kt] ?(?:usd|eur|clp|gbp|chf)\b|(?:[$€£]|\b(?:usd|eur|gbp|chf|sek|nok|dkk|pln|clp)) ?k\b|\bm ?clp\b|\(000"
)
_ONE_THOUSAND = re.compile(
    r"(?:[(×]|\b(?:in|en|x)\b|\A(?=[a-z]{3} )) ?(?:[a-z]{0,2}[$€£]|[a-z]{3})? ?1[.,]000(?:s| (?:euros?|pesos|dolares|dollars|usd|eur|[$€£]))?(?=\)|,|\Z)"
)
"""A thousand as a unit, with a mark in it: ``(EUR 1,000)``, ``en 1.000 euros``."""
_LONE_M = re.compile(r"\bm ?(?:usd|pen|cop|mxn|ars|uyu|bob|crc|gtq|dop|pyg|brl)\b")
UNCLEAR = 0
"""A scale that a text says, but not which one: ``M USD`` is thousands of dollars in Santiago and Lima, and millions in London and Stockholm."""
_BESIDE_M = re.compile(r"\bmm\b|\bmm ?(?:us|ch)?\$|\bmm[a-z]{3}\b|\bm ?(?:us)?\$")
_UNITS = re.compile(
    r"\b(?:en|unidad(?: monetaria)?:|moneda:) (?:pesos|dolares|euros|soles|unidades|bolivianos|quetzales|colones|guaranies|lempiras|balboas)\b|"
    r"\bin (?:u\.?s\.? )?(?:dollars|euros|pesos|units|pounds)\b|\bwhole (?:dollars|units|pounds)\b"
)


@lru_cache(4096)
def scale_of(text: str) -> int | None:
    """1000 or 1000000 where a text says so; 1 where it says units; UNCLEAR where it says ``M USD`` and no more."""
    said = plain(text)
    if _MILLIONS.search(said):
        return 1_000_000
    if _ONE_THOUSAND.search(said):
        return 1000
    if _THOUSANDS.search(said) and not re.search(r"\d[.,]000\b", said):
        return 1000
    if _LONE_M.search(said):
        return UNCLEAR
    return 1 if _UNITS.search(said) else None


def clearest(*scales: int | None) -> int | None:
    """The first scale that is clear; UNCLEAR if one was said and none is."""
    return next((scale for scale in scales if scale), UNCLEAR if UNCLEAR in scales else None)


def lone_m(lines: list[str], *, spanish: bool) -> int:
    """What a single ``M`` counts in: thousands in a document that writes ``MM`` or ``M$`` too, millions in English; else UNCLEAR."""
    if any(_BESIDE_M.search(plain(text)) for text in lines):
        return 1000
    return UNCLEAR if spanish else 1_000_000


_NAMED: tuple[tuple[str, str], ...] = (
    ("USD", r"\bus ?\$|\bu\$[sd]\b|\bu\.s\. ?dollars?|\bus dollars?|\b[kt]?usd\b|dolares( estadounidenses| de los estados unidos)?|\bm+us\$|\bm+usd\b|\bmdd\b|\bthus\$|\bdollars\b"),
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
    ("MXN", r"pesos mexicanos|\bmdp\b|\bmxn\b|\bmx ?\$|moneda nacional|\bm\.n\.|\bde c\.? ?v\b\.?|\bbanca multiple\b|\bmexico\b"),
    ("COP", r"pesos colombianos|\bcop\b|\bcol ?\$|\bnit\b|\bs\.a\.s\b|\bcolombia\b"),
    ("ARS", r"pesos argentinos|\bars\b|\bar ?\$|\bcuit\b|\bargentina\b"),
    ("CLP", r"pesos chilenos|\bclp\b|\bm+\$|\b(?:th|m+)? ?ch ?\$|\brut\b|\bchile\b|\bspa\b"),
)  # fmt: skip
_CURRENCIES = [
    (code, re.compile(pattern)) for code, pattern in sorted(_NAMED, key=lambda one: one[0] == "USD")
]
"""Dollars last: other countries' dollars and ``US$`` beside another currency's name are said with more words."""
_CODE_AT_NUMBER = re.compile(r"\b([a-z]{3})(?=\d)")
_PESOS = ("CLP", "MXN", "COP", "ARS", "UYU", "DOP")
_C_DOLLARS = re.compile(r"\bc ?\$")
_ABOUT_UNITS = re.compile(
    r"miles|millones|thousands|millions|expresad|expressed|moneda|currency|cifras|figures|amounts|in (us|euro)|en (pesos|dolares|euros|soles)|unidad|000"
)


@lru_cache(4096)
def currency_of(text: str) -> str | None:
    """The currency that a text names."""
    said = _CODE_AT_NUMBER.sub(r"\1 ", plain(text))
    return next((code for code, pattern in _CURRENCIES if pattern.search(said)), None)


def currency_by_votes(lines: list[str], *, spanish: bool, thousands: str = ".") -> str | None:
    """The document's currency: words about units count most, signs beside numbers less. Which ``pesos``, and what ``$`` or ``C$`` is, other
    words of the document say, else its language and how it writes thousands."""
    votes: Counter[str] = Counter()
    pesos = dollars = 0
    for text in lines:
        said = plain(text)
        weight = 5 if _ABOUT_UNITS.search(said) else 1
        code = currency_of(text)
        if code is not None:
            votes[code] += weight
        elif re.search(r"\bpesos\b", said):
            pesos += weight
        elif _C_DOLLARS.search(said):
            votes["NIO" if spanish else "CAD"] += weight
        elif "$" in said:
            dollars += 1
    usual = "MXN" if thousands == "," else "CLP"
    named = max((usual, *_PESOS), key=lambda code: votes[code])
    if pesos:
        votes[named] += pesos
    if dollars:
        votes[named if spanish or votes[named] else "USD"] += dollars
    return votes.most_common(1)[0][0] if votes else None
