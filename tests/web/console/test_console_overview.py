"""The overview of the map: every pipeline on one screen, and a page for each."""

from __future__ import annotations

import pytest
from web.console.browser import ready
from web.console.conftest import NewPage
from web.console.world import World

# The browser, the server and the tests share one event loop.
pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
async def test_every_pipeline_is_on_the_first_screen(
    world: World, new_page: NewPage, width: int, height: int
) -> None:
    """On a phone, where the cards follow each other, each shows its failed records whole."""
    async with new_page(viewport={"width": width, "height": height}) as page:
        await page.goto(world.url)
        await ready(page)
        cards = page.locator(".overview > li")
        names = await cards.locator("h2 a").all_inner_texts()
        assert names == [plan.name for plan in world.runtime.read_model.pipelines()]
        for card in await cards.all():
            box = await card.bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
            if width > 1000:
                assert box["y"] + box["height"] <= height
        failed = cards.locator(".roles .failed:not(.none)")
        assert await failed.count() > 0
        for each in await failed.all():
            box = await each.bounding_box()
            assert box is not None
            assert box["x"] + box["width"] <= width


async def test_a_card_counts_in_whole_words(world: World, new_page: NewPage) -> None:
    words = {"1": ("fallido", "terminado"), "": ("fallidos", "terminados")}
    async with new_page(locale="es-CL") as page:
        await page.goto(world.url)
        for role in await page.locator(".roles .failed, .roles .finished").all():
            count, word = (await role.inner_text()).split()
            assert word in words.get(count, words[""])


async def test_a_card_counts_as_its_lifecycles_do(world: World, new_page: NewPage) -> None:
    async with new_page() as page:
        await page.goto(world.url)
        await ready(page)
        card = page.locator(".overview > li").filter(has_text="replies")
        failed = await card.locator(".failed b").inner_text()
        await card.get_by_role("link", name="replies").click()
        await ready(page)
        assert page.url.endswith("/console/pipelines/replies")
        counts = await page.locator("a.node.failed [data-count]").all_text_contents()
        assert int(failed.replace(",", "")) == sum(int(n.replace(",", "")) for n in counts) > 0
        assert await page.locator("[data-graph=pictures]").count() == 0
        answer = await page.goto(f"{world.url}/console/pipelines/repliess")
        assert answer is not None
        assert answer.status == 404
        assert "Did you mean replies?" in await page.locator("main").inner_text()
