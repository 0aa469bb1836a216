"""New buckets on the Supabase simulator."""

from __future__ import annotations

import json
import urllib.request
import uuid
from typing import Any

from esclusa.simulators import SimulatorProcess
from esclusa.simulators.supabase import SERVICE_KEY


def supabase_bucket(server: SimulatorProcess, **options: Any) -> tuple[str, dict[str, str]]:
    """Create a public bucket; return the store's URL and the settings to reach it."""
    name = f"b{uuid.uuid4().hex}"
    request = urllib.request.Request(
        f"{server.url}/storage/v1/bucket",
        data=json.dumps({"id": name, "name": name, "public": True} | options).encode(),
        headers={"Authorization": f"Bearer {SERVICE_KEY}", "Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    opener.open(request, timeout=10).close()
    return f"supabase://{name}", {"SUPABASE_URL": server.url, "SUPABASE_SERVICE_KEY": SERVICE_KEY}
