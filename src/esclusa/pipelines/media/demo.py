"""The part of ``make demo`` for this pipeline: good links, failing links and invalid media."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from esclusa.http import session
from esclusa.pipelines.media import deliveries, views
from esclusa.pipelines.media.records import Publication
from esclusa.simulators.media_cdn import sign

SIMULATORS: tuple[str, ...] = ("media_cdn",)
CYCLES: tuple[str, ...] = ("media.download",)
SECRET = "a secret between Meta and the demo"  # noqa: S105 - used only by the demo

PHOTOS = 24


def environ(urls: dict[str, str], folder: Path) -> dict[str, str]:
    """Return the settings of the demo, given the addresses of the simulators."""
    return {
        "META_APP_SECRET": SECRET,
        "META_VERIFY_TOKEN": "demo",
        "MEDIA_ALLOW_HOSTS": urlsplit(urls["media_cdn"]).netloc,
        "MEDIA_INTERVAL_SECONDS": "1",
        "MEDIA_BACKOFF_SECONDS": "0.5",
        "MEDIA_TIMEOUT_SECONDS": "1.5",
        "MEDIA_MAX_BYTES": "20000000",
    }


async def prepare(runtime: Any, urls: dict[str, str], folder: Path) -> None:
    """Receive one delivery of the webhook, and order faults at the CDN."""
    cdn = urls["media_cdn"]
    changes: list[dict[str, Any]] = [
        _change("photo", f"101_{n}", photo_id=str(900 + n), link=cdn + sign(path))
        for n in range(PHOTOS)
        for path in [f"/m/jpg/{40_000 + n}/photo{n}"]
    ]
    changes += [
        _change("video", f"102_{name}", video_id=name, link=cdn + path)
        for name, path in (
            ("film", "/m/mp4/3000000/film"),
            ("expired", sign("/m/jpg/9000/old", lifetime=-60)),
            ("page", "/html"),
            ("metadata", "/to?url=http://169.254.169.254/latest/meta-data"),
            ("slow", "/drip/30"),
            ("large", "/bomb/40000000"),
        )
    ]
    changes += [
        _change("status", "103_1", photos=[f"{cdn}/m/png/5000/album{n}" for n in range(3)]),
        _change("share", "104_1", share_id="1", link="https://example.org"),
    ]
    document = {
        "object": "page",
        "entry": [{"id": "1", "changes": [{"field": "feed", "value": c} for c in changes]}],
    }
    faults = [
        {"path": "/m/jpg", "match": "photo1", "status": 503, "times": 6},
        {"path": "/m/jpg", "match": "photo2", "fault": "cut", "times": 4},
        {"path": "/m/mp4", "fault": "hang", "seconds": 3, "times": 1},
    ]
    async with session() as http, http.post(f"{cdn}/_faults", json=faults) as answer:
        answer.raise_for_status()
    await deliveries.receive(runtime, json.dumps(document))


def _change(item: str, post_id: str, **fields: Any) -> dict[str, Any]:
    return {"item": item, "verb": "add", "post_id": post_id, **fields}


async def finished(runtime: Any) -> bool:
    """Return whether no publication with a link is pending or downloading."""
    left, _ = await runtime.records.count(
        Publication, {"status": ["pending", "downloading"], **views.WITH_MEDIA}
    )
    return not left


async def summary(runtime: Any) -> list[str]:
    """Return the lines that the demo prints at its end."""
    lines = [
        f"{item['total']:>3} {item['media_status']:<8} "
        f"after {item['avg_intentos']:.1f} attempts on average"
        for item in (await views.summary(runtime.records))["items"]
    ]
    lines += [
        f"    {e['post_id']}: {e['error_type']} after {e['media_attempts']}: {e['error_msg'][:90]}"
        for e in (await views.errors(runtime.records, 10))["items"]
    ]
    first = await runtime.records.first(Publication, {"status": "success"})
    if first is not None:
        lines.append(f"    the files are at {first.imagen_local.rpartition('/')[0]}/")
    return lines
