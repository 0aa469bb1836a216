"""The route that answers tenders as a file."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from esclusa import Runtime
from esclusa.pipelines.tenders.results import ResultFormat, TenderFile
from esclusa.web import file_response, problem_responses


def add_results(runtime: Runtime, api: APIRouter) -> None:
    """Add the route. It must come before those with a code in the same place."""

    @api.get(
        "/licitaciones/export",
        response_class=Response,
        responses=problem_responses(400, 404),
        summary="Tenders as a file: OCDS 1.1 releases, CSV, NDJSON or Parquet",
    )
    async def export(
        request: Request,
        format: Annotated[ResultFormat, Query(description="The format of the file")] = "ocds",
        month: Annotated[
            str | None, Query(description="Only tenders published in this month (UTC)")
        ] = None,
    ) -> Response:
        """Archived tenders are included. The file is streamed."""
        file = TenderFile(runtime, format, month, str(request.url))
        return await file_response(request, file.name, file, file.media_type)
