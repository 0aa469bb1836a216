"""The site of the documentation: whole, without broken links, without anything from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright
from web.console.browser import CHROMIUM

from tools.docs import site


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    site.build(folder)
    return folder


def test_every_page_of_the_documentation_is_in_the_sidebar() -> None:
    written = {str(p.relative_to(site.ROOT)) for p in (site.ROOT / "docs").rglob("*.md")}
    assert sorted(written - set(site.pages())) == [], "add it to SECTIONS in tools/docs/site.py"
    assert len(site.pages()) == len(set(site.pages()))


def test_every_link_and_anchor_leads_somewhere(built: Path) -> None:
    assert site.broken_links(built) == []


def test_a_broken_link_is_found(built: Path, tmp_path: Path) -> None:
    page = (built / "tutorial.html").read_text("utf-8")
    page = page.replace("</main>", '<a href="nowhere.html">a</a><a href="#no">b</a></main>')
    (tmp_path / "tutorial.html").write_text(page)
    faults = site.broken_links(tmp_path)
    assert "tutorial.html: nowhere.html: no such file" in faults
    assert "tutorial.html: #no: no such anchor" in faults


def test_nothing_is_loaded_from_elsewhere(built: Path) -> None:
    for path in built.rglob("*.html"):
        text = path.read_text("utf-8")
        assert re.findall(r"<(?:script|img|link|iframe)[^>]*(?:src|href)=\"https?:", text) == []


def test_diagrams_are_shown_as_code(built: Path) -> None:
    assert "stateDiagram-v2" in (built / "index.html").read_text("utf-8")


def test_llms_txt_names_every_page_with_its_text(built: Path) -> None:
    text = (built / "llms.txt").read_text("utf-8")
    assert text.startswith("# Esclusa\n\n> ")
    found = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): \S", text, re.MULTILINE)
    assert len(found) == len(site.pages())
    for link in found:
        assert (built / link).read_text("utf-8").lstrip().startswith("#")


def test_the_search_works_from_a_folder(built: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 390, "height": 800})
        loaded: list[str] = []
        page.on("request", lambda request: loaded.append(request.url))
        page.on("pageerror", lambda error: loaded.append(f"error: {error}"))
        page.goto((built / "howto" / "mcp.html").as_uri())
        page.keyboard.press("/")
        page.keyboard.type("exhausted_fields")
        page.wait_for_selector("#results [aria-selected=true]")
        page.keyboard.press("Enter")
        page.wait_for_url("**/python.html#exhausted_fields")
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert [url for url in loaded if not url.startswith("file:")] == []
        browser.close()
