"""Charts and time zones in a browser."""

from __future__ import annotations

import pytest
from web.console.conftest import NewPage
from web.console.world import World

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_charts_are_read_by_pointer_and_by_keyboard(world: World, new_page: NewPage) -> None:
    async with new_page() as page:
        await page.goto(f"{world.url}/console/charts?of=media.download&over=hour")
        chart = page.locator("[data-chart=throughput]")
        assert await chart.locator(".hit").count() == 60
        await chart.locator(".hit").nth(40).hover()
        readout = page.locator("[data-readout=throughput]")
        assert "moved" in await readout.inner_text()
        await chart.focus()
        await page.keyboard.press("Home")
        first = await readout.inner_text()
        await page.keyboard.press("ArrowRight")
        assert await readout.inner_text() != first
        await page.keyboard.press("End")
        assert await chart.locator(".hit").nth(59).get_attribute("class") == "hit on"
        await page.get_by_text("The numbers as a table").focus()
        await page.keyboard.press("Enter")
        assert await page.locator("details[open] tbody tr").count() == 60


async def test_a_stage_is_compared_with_the_span_before_without_scripts(
    world: World, new_page: NewPage
) -> None:
    async with new_page(java_script_enabled=False) as page:
        await page.goto(f"{world.url}/console/stages")
        await page.get_by_role("link", name="Charts", exact=True).click()
        row = page.locator("tbody tr", has_text="media.download").last
        assert await row.locator("td").count() == 9
        await page.get_by_label("Charts of").select_option("tenders")
        await page.get_by_role("button", name="Show").click()
        assert await page.locator("h1 small").inner_text() == "tenders"
        await page.get_by_role("link", name="2 weeks").click()
        assert "Nothing before is kept" in await page.locator("main").inner_text()
        await page.goto(f"{world.url}/console/charts?of=nothing")
        assert "there is no stage 'nothing'" in await page.locator("main").inner_text()


async def test_times_are_in_the_zone_of_the_browser_and_in_utc_on_demand(
    world: World, new_page: NewPage
) -> None:
    async with new_page(timezone_id="America/Santiago") as page:
        await page.goto(f"{world.url}/console/audit")
        await page.get_by_role("link", name="America/Santiago").wait_for()
        time = page.locator("time").first
        at = await time.get_attribute("title") or ""
        assert "America/Santiago" in at
        await page.get_by_role("button", name="UTC").click()
        await page.get_by_role("button", name="Local time").wait_for()
        assert "UTC" in (await time.get_attribute("title") or "")
        await page.get_by_role("button", name="Local time").click()
        await page.get_by_role("link", name="America/Santiago").wait_for()


async def test_a_zone_is_chosen_without_scripts(world: World, new_page: NewPage) -> None:
    async with new_page(java_script_enabled=False, timezone_id="America/Santiago") as page:
        await page.goto(f"{world.url}/console/audit")
        await page.get_by_role("link", name="UTC").click()
        await page.get_by_label("Show times in").select_option("Asia/Kathmandu")
        await page.get_by_role("button", name="Save").click()
        await page.wait_for_url("**/console/audit")
        assert "Asia/Kathmandu" in (await page.locator("time").first.get_attribute("title") or "")
