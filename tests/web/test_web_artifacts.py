"""Downloads of artifacts: only files of the artifact store, and never as pages of this site."""

from __future__ import annotations

from pathlib import Path

import pytest
from web.shop import Client


@pytest.mark.parametrize(
    "path",
    [
        "../shop.db",
        "..%2Fshop.db",
        "%2e%2e/shop.db",
        "photos/../../shop.db",
        "photos%2F..%2F..%2Fshop.db",
        "/etc/passwd",
        "%2Fetc%2Fpasswd",
        "..%5Cshop.db",
        "photos/1.png%00.txt",
        "link/shop.db",
        "",
    ],
)
async def test_no_path_leads_out_of_the_store(shop: Client, tmp_path: Path, path: str) -> None:
    assert (tmp_path / "shop.db").exists()
    await shop.runtime.artifacts.put("photos/1.png", b"picture")
    (tmp_path / "artifacts" / "link").symlink_to(tmp_path)
    answer = await shop.get(f"/api/artifacts/{path}")
    assert answer.status in (400, 404, 503), answer.status
    assert "SQLite format" not in answer.text
    assert "root:" not in answer.text


async def test_active_content_is_downloaded_and_sandboxed(shop: Client) -> None:
    for name, inline in (
        ("page.html", False),
        ("picture.svg", False),
        ("script.js", False),
        ("unknown", False),
        ("photo.png", True),
    ):
        await shop.runtime.artifacts.put(name, b"<script>alert(1)</script>")
        headers = (await shop.get(f"/api/artifacts/{name}")).headers
        assert headers["content-security-policy"] == "sandbox; default-src 'none'"
        assert headers["x-content-type-options"] == "nosniff"
        if inline:
            assert headers["content-type"] == "image/png"
        else:
            assert headers["content-type"] == "application/octet-stream"
            assert headers["content-disposition"] == "attachment"


async def test_a_path_works_as_it_is_shown(shop: Client) -> None:
    for path in ("raw/El%20Salvador/x.png", "raw/El Salvador/x.png", "100%.png"):
        await shop.runtime.artifacts.put(path, path.encode())
    for pasted, path in (
        ("raw/El%20Salvador/x.png", "raw/El Salvador/x.png"),  # encoded comes first
        ("raw/El%2520Salvador/x.png", "raw/El%20Salvador/x.png"),
        ("100%.png", "100%.png"),
    ):
        assert (await shop.get(f"/api/artifacts/{pasted}")).text == path
    await shop.runtime.artifacts.put("only/a%2Fb.png", b"escaped")
    assert (await shop.get("/api/artifacts/only/a%2Fb.png")).text == "escaped"
