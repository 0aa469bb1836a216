"""The system's Chromium, and the pages of the console by name."""

from __future__ import annotations

import shutil
from typing import Any

from web.console.world import World

CHROMIUM = (
    shutil.which("chromium")
    or shutil.which("chromium-browser")
    or shutil.which("google-chrome")
    or "/usr/bin/chromium"
)


async def pages(world: World) -> dict[str, str]:
    """The path of every page of the console by name, with ids of this world."""
    letters = (await world.runtime.read_model.dead_letters({"status": "open"}, limit=1)).items
    failed = (
        await world.runtime.read_model.records("pending_jobs", {"status": "failed"}, limit=1)
    ).items
    run = (await world.runtime.read_model.runs({}, limit=1)).items[0]
    return {
        "map": "/",
        "pipeline": "/console/pipelines/replies",
        "stages": "/console/stages",
        "charts": "/console/charts",
        "stage-charts": "/console/charts?of=media.download&over=hour",
        "times": "/console/times/pending_jobs",
        "time-zone": "/console/preferences",
        "kinds": "/console/records",
        "records": "/console/records/pending_jobs",
        "filtered": "/console/records/pending_jobs?status=pending&platform=twitter&attempts__gte=0",
        "columns": "/console/records/pending_jobs?columns=attempts,platform,last_error.type",
        "filters": "/console/filters",
        "record": f"/console/records/pending_jobs/{failed[0].id}",
        "preview": "/console/records/pending_jobs/act?verb=retry&status=failed",
        "actions": "/console/actions",
        "action": "/console/actions/media/retry-pictures",
        "views": "/console/views",
        "view": "/console/views/media.errors",
        "dead-letters": "/console/dead-letters",
        "dead-letter-list": "/console/dead-letters/list",
        "dead-letter": f"/console/dead-letters/{letters[0].id}",
        "redrive": "/console/dead-letters/act?verb=redrive&table=pictures&error=invalid_media",
        "cycles": "/console/cycles",
        "runs": "/console/runs",
        "run": f"/console/runs/{run.id.replace('%', '%25')}",
        "budgets": "/console/budgets",
        "workers": "/console/workers",
        "alerts": "/console/alerts",
        "alert-rules": "/console/alert-rules",
        "audit": "/console/audit",
        "keyboard": "/console/keyboard",
        "archive": "/console/archive",
        "health": "/console/health",
        "trace": "/console/documents/apolo-2024/apolo-2024:balance#vapolo-2024%3Abalance%2F",
        "search": "/console/search?q=9f0000",
        "not-found": "/console/records/pending_jobs/nobody",
    }


async def ready(page: Any) -> None:
    """Wait until the page is loaded and, on the map, the first live counts have arrived."""
    await page.wait_for_load_state("load")
    if await page.locator("[data-live]").count():
        await page.locator("[data-live].on").wait_for(timeout=10_000)
