"""A person corrects or confirms a value, or releases a document that was held for review.

The value as it was read stays. The document's history has a row for each correction, with who, when
and why; the audit has one too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from esclusa import BadQuery, Move, NotFound, To, Wake
from esclusa.pipelines.documents.checks import check_document
from esclusa.pipelines.documents.records import HELD, Documento, Extraccion, Folio
from esclusa.pipelines.documents.review import MAX_PRIOR, reasons_of, vars_of

if TYPE_CHECKING:
    from esclusa import Runtime

_NUMBER = re.compile(r"-?\d{1,30}(?:\.\d{1,12})?")
# The states in which a document's values can be corrected.
OPEN = ("DONE", *HELD)


async def review_value(
    runtime: Runtime, who: str, id: str, *, value: str | None, reason: str
) -> Extraccion:
    """Correct a value, or confirm it (``value`` None). Raises NotFound or BadQuery.

    ``value`` is a signed decimal without separators of thousands, such as ``-812440.5``.
    """
    if value is not None and not _NUMBER.fullmatch(value := value.strip()):
        raise BadQuery(f"{value[:60]!r} is not a number such as -812440.5")
    found = await runtime.records.get(Extraccion, id)
    if found is None:
        raise NotFound(f"there is no value {id!r}")
    operations = runtime.operations(who)
    kept = "corrected" if value is not None else "confirmed"
    fields: dict[str, Any] = {
        "review": kept,
        "corrected_value": value,
        "review_reason": reason,
        "reviewed_by": who,
        "reviewed_at": runtime.read_model.now(),
    }

    async def choose(doc: Documento) -> To | str:
        if doc.status not in OPEN:
            return f"the document is {doc.status}"
        if found.revision != doc.revision:
            return "the document was read again since"
        page = await runtime.records.find(
            Extraccion,
            {"documento_id": doc.id, "revision": doc.revision},
            order="position",
            limit=MAX_PRIOR,
        )
        items = [vars_of(e) | (fields if e.id == id else {}) for e in page.items]
        own = [c for c in doc.checks if c["code"] == "prior_year"]
        checks = [*check_document(items), *own]
        least = runtime.settings_of("documents").review_confidence
        reasons = reasons_of(items, doc.extractor_output_summary or {}, checks, least)
        reasons += doc.warnings
        name = " ".join(filter(None, (found.LINE_ITEM_NAME, found.REPORTING_PERIOD)))
        shown = f"{found.value} → {value}" if value is not None else f"{found.value} confirmed"
        return To(
            doc.status,
            checks=checks,
            review_reasons=reasons,
            needs_review=bool(reasons),
            corrections=doc.corrections + 1,
            attempts=doc.attempts,
            reason=f"{name}: {shown}: {reason}",
            also=[Move(Extraccion, id, "kept", frm="kept", **fields)],
        )

    where = {"id": found.documento_id}
    acted = await operations.apply(kept, Documento.kind.table, choose, where=where, reason=reason)
    if not acted.moved:
        raise BadQuery(acted.passed[0]["why"] if acted.passed else "the document has changed")
    return found.model_copy(update=fields)


async def release(runtime: Runtime, who: str, id: str, *, reason: str) -> None:
    """Mark a document as reviewed: nothing in it needs a person any more. Raises as above."""

    async def choose(doc: Documento) -> To | str:
        if doc.status not in OPEN:
            return f"the document is {doc.status}"
        return To(
            "DONE",
            needs_review=False,
            review_reasons=[],
            attempts=doc.attempts,
            reason=reason,
            also=[Wake(Folio, doc.folio_id)],
        )

    acted = await runtime.operations(who).apply(
        "review", Documento.kind.table, choose, where={"id": id}, reason=reason
    )
    if not acted.moved:
        raise BadQuery(acted.passed[0]["why"] if acted.passed else f"there is no document {id!r}")
