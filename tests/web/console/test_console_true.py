"""Figures of pages agree, and their texts are whole, in both languages."""

from __future__ import annotations

import re

import pytest
from web.console.browser import pages, ready
from web.console.conftest import NewPage
from web.console.world import World

# The browser, the server and the tests share one event loop.
pytestmark = pytest.mark.asyncio(loop_scope="session")

# The words of a page that begin in one line and end in another, although each fits into a line.
BROKEN = r"""() => {
  const found = [];
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (!node.parentElement || node.parentElement.closest("pre, code, svg, .sr, details")) continue;
    for (const word of node.textContent.matchAll(/[\p{L}\p{N}]{2,20}/gu)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
      if (lines.size > 1) found.push(word[0]);
    }
  }
  return [...new Set(found)];
}"""

LISTED = (
    *("map", "stages", "kinds", "records", "filtered", "record", "views", "view", "dead-letters"),
    *("cycles", "runs", "budgets", "workers", "alerts", "audit", "archive", "health", "trace"),
)


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("locale", ["en-GB", "es-CL"])
async def test_no_word_is_broken_and_nothing_reads_none(
    world: World, new_page: NewPage, locale: str, width: int
) -> None:
    paths = await pages(world)
    faults = {}
    async with new_page(locale=locale, viewport={"width": width, "height": 800}) as page:
        for name in LISTED:
            await page.goto(world.url + paths[name])
            await ready(page)
            if broken := await page.evaluate(BROKEN):
                faults[name] = broken
            assert await page.locator("main .primary:visible").count() <= 1, name
            text = await page.locator("main").inner_text()
            assert not re.search(r"\bNone\b|%3A|\bnan\b", text), name
            hrefs = await page.locator("main a[href]").evaluate_all(
                "links => links.map((link) => link.getAttribute('href'))"
            )
            assert not [href for href in hrefs if "%3A" in href], name
    assert faults == {}


async def test_health_and_map_count_the_same_finished_records(
    world: World, new_page: NewPage
) -> None:
    async with new_page() as page:
        await page.goto(world.url)
        await ready(page)
        nodes = await page.locator("a.node.finished").evaluate_all(
            """nodes => nodes.map((node) => [
              node.closest("[data-graph]").dataset.graph,
              Number(node.querySelector("[data-count]").textContent.replace(/[^0-9]/g, "")),
            ])"""
        )
        on_map: dict[str, int] = {}
        for table, count in nodes:
            on_map[table] = on_map.get(table, 0) + count
        assert on_map["posts"] > 0
        await page.goto(f"{world.url}/console/health")
        for table, count in on_map.items():
            row = page.locator("table.rows tr").filter(
                has=page.locator(f'a[href$="/records/{table}"]')
            )
            finished = (await row.locator("td.n").nth(1).inner_text()).replace(",", "")
            assert (table, int(finished)) == (table, count)


async def test_a_stage_without_a_worker_promises_no_time(
    own_world: World, new_page: NewPage
) -> None:
    for locale, words in (("en-GB", "not at this rate"), ("es-CL", "no a este ritmo")):
        async with new_page(locale=locale) as page:
            await own_world.runtime.operations("test").pause("media.download", "test")
            await page.goto(f"{own_world.url}/console/stages")
            card = page.locator(".stage").filter(has_text="media.download")
            assert words in await card.inner_text()
            assert "media.download" in await card.locator(".hint").first.inner_text()


async def test_the_search_opens_the_id_that_was_typed(world: World, new_page: NewPage) -> None:
    async with new_page() as page:
        await page.goto(f"{world.url}/console/search?q=9f00002")  # ids only begin so
        assert await page.locator(".hits li").count() > 0
        await page.goto(f"{world.url}/console/records/pending_jobs")
        await page.get_by_label("Id or filter").fill("last_eror.type=timeout")
        await page.get_by_role("button", name="Find").click()
        text = await page.locator("main").inner_text()
        assert "has no field last_eror.type; it has" in text
