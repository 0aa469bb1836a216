"""Why a document needs a person: unread pages, low confidence, failed checks, warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from esclusa import Attempt, Failure
from esclusa.pipelines.documents.checks import Check, check_document, words_of
from esclusa.pipelines.documents.processors import Extracted
from esclusa.pipelines.documents.records import HELD, Documento, Extraccion

# The most numbers of last year's file that are compared.
MAX_PRIOR = 5000


def organisation_key(items: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the organisation of a document in a form that files of two years share."""
    name = next((item["ORG_NAME"] for item in items if item.get("ORG_NAME")), None)
    return words_of(name).replace(",", "").replace(".", "")[:200] or None if name else None


def latest_period(items: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the end of the latest period of a document."""
    ends = [item["REPORTING_PERIOD"] for item in items if item.get("REPORTING_PERIOD")]
    return max(ends, default=None)


async def review_fields(
    doc: Documento, at: Attempt, results: Extracted, lost: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the fields of a document that was read: its checks, and why it needs a person.

    ``lost`` are decisions of persons about an earlier reading that could not be carried over.
    """
    items = results.items
    key, period = organisation_key(items), latest_period(items)
    checks = check_document(items, await _prior_values(doc, at, key, period, items))
    reasons = reasons_of(items, results.summary, checks, at.settings.review_confidence)
    reasons += results.warnings
    if lost:
        labels = list(lost[:5])
        reasons.append({"code": "corrections_lost", "values": len(lost), "labels": labels})
    return {
        "org_key": key,
        "period": period,
        "checks": checks,
        "review_reasons": reasons,
        "needs_review": bool(reasons),
    }


REVIEW_FIELDS = ("review", "corrected_value", "review_reason", "reviewed_by", "reviewed_at")
# What a number has in common with the same number of an earlier reading.
_SAME = (
    "LINE_ITEM_NAME",
    "LINE_ITEM_VALUE",
    "REPORTING_PERIOD",
    "COLUMN_YEAR",
    "TABLE_COLUMN_HEADER",
    "SECTION_HEADER",
)


async def carry_over(doc: Documento, at: Attempt, items: list[dict[str, Any]]) -> list[str]:
    """Give numbers what persons decided about them in the reading before this one.

    Return the labels of decisions whose number was not found again, or is there twice.
    """
    if not doc.corrections or doc.revision is None:
        return []
    new: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for item in items:
        new.setdefault(tuple(item.get(name) for name in _SAME), []).append(item)
    lost: list[str] = []
    where = {"documento_id": doc.id, "revision": doc.revision}
    async for old in at.records.each(Extraccion, where, order="position"):
        if old.review is None:
            continue
        found = new.get(tuple(getattr(old, name) for name in _SAME), [])
        if len(found) == 1 and not found[0].get("review"):
            found[0].update({name: getattr(old, name) for name in REVIEW_FIELDS})
        else:
            lost.append(f"{old.LINE_ITEM_NAME}: {old.corrected_value or old.value}")
    return lost


def reasons_of(
    items: Sequence[Mapping[str, Any]],
    summary: Mapping[str, Any],
    checks: Sequence[Check],
    least: float,
) -> list[dict[str, Any]]:
    """Return the reasons as codes with values. Numbers that a person has seen are certain."""
    reasons: list[dict[str, Any]] = []
    if unread := summary.get("unread_pages"):
        ocr = {"ocr": "off"} if summary.get("ocr") == "off" else {}
        reasons.append({"code": "unread_pages", "pages": list(unread[:100]), **ocr})
    unsure = [
        item["confidence"]
        for item in items
        if item.get("type") == "LINE_ITEM_VALUE"
        and item.get("confidence") is not None
        and item["confidence"] < least
        and not item.get("review")
    ]
    if unsure:
        reasons.append({"code": "low_confidence", "values": len(unsure), "lowest": min(unsure)})
    for code in ("total", "balance", "prior_year"):
        failed = [check for check in checks if check["code"] == code and not check["passed"]]
        if failed:
            labels = [check["label"] for check in failed[:5]]
            reasons.append({"code": f"{code}_differs", "values": len(failed), "labels": labels})
    return reasons


async def _prior_values(
    doc: Documento,
    at: Attempt,
    key: str | None,
    period: str | None,
    items: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Return the numbers of the file whose latest period is an earlier one of this document."""
    earlier = {i.get("REPORTING_PERIOD") for i in items} - {None, period}
    if key is None or not earlier:
        return []
    where = {"org_key": key, "doc_type": doc.doc_type, "period": max(map(str, earlier))}
    try:
        page = await at.records.find(Documento, where, limit=10)
    except Failure:
        return []
    for other in page.items:
        if other.id == doc.id or other.revision is None or other.status not in ("DONE", *HELD):
            continue
        filter_ = {"documento_id": other.id, "revision": other.revision}
        found = await at.records.find(Extraccion, filter_, order="position", limit=MAX_PRIOR)
        return [vars_of(each) for each in found.items if other.period == each.REPORTING_PERIOD]
    return []


def vars_of(record: Extraccion) -> dict[str, Any]:
    """Return the fields of an extraction that checks use."""
    return {name: getattr(record, name) for name in _CHECKED}


_CHECKED = (
    "type",
    "LINE_ITEM_NAME",
    "SECTION_HEADER",
    "TOTAL_LABEL",
    "REPORTING_PERIOD",
    "COLUMN_YEAR",
    "UNITS_SCALE",
    "TABLE_CELL_REF",
    "TABLE_COLUMN_HEADER",
    "ORG_NAME",
    "value",
    "corrected_value",
    "confidence",
    "review",
)
