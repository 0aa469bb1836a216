"""The actions of operators on folders and documents: reprocess, map stored answers anew."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from esclusa import Create, To
from esclusa.pipelines.documents.records import Documento, FolderSignal, Folio

if TYPE_CHECKING:
    from esclusa import ActionContext


class ReprocessParams(BaseModel):
    """Which documents of the folders are processed again beside the new and the failed ones."""

    model_config = ConfigDict(extra="forbid")

    force: bool = Field(
        False,
        title="Unchanged documents too",
        json_schema_extra={"es": "También los documentos sin cambios"},
    )
    unread: bool = Field(
        False,
        title="Documents that another service called DONE without reading them",
        json_schema_extra={"es": "Documentos que otro servicio dio por DONE sin leerlos"},
    )


async def reprocess(folio: Folio, at: ActionContext) -> To | str:
    """Process finished folders again: their new and failed documents."""
    signal = FolderSignal(
        signal_key=f"command {secrets.token_hex(8)}",
        folio_id=folio.folio_id,
        bucket=folio.bucket,
        folder_prefix=folio.folder_prefix,
        reprocess=True,
        force=at.params.force,
        unread=at.params.unread,
    )
    return To(folio.status, also=[Create(signal)], attempts=folio.attempts)


async def remap(doc: Documento, at: ActionContext) -> To | str:
    """Map the stored answers of Document AI anew, without a call."""
    if (doc.extractor_output_summary or {}).get("processor") == "local":
        return "it was read here: the stored answers are the words of its pictures"
    paths = [answer["path"] for answer in doc.answers]
    if not paths:
        return "it has no stored answers"
    for path in paths:
        if await at.artifacts.info(path) is None:
            return f"the answer {path} is not stored any more"
    return To("NOT_STARTED", remap=True)
