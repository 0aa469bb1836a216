"""The tasks of docs/howto/operate.md, with their clicks, in a browser."""

from __future__ import annotations

from typing import Any

import pytest
from web.console.world import World

NewPage = Any

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_ten_tasks_of_an_operator(own_world: World, new_page: NewPage) -> None:
    read_model = own_world.runtime.read_model
    failed = (await read_model.records("pending_jobs", {"status": "failed"}, limit=1)).items[0]
    async with new_page() as page:
        main = page.locator("main")

        async def menu(name: str) -> None:
            await page.locator("nav.menu").get_by_role("link", name=name).click()

        # Why is this record stuck?
        await page.goto(own_world.url)
        await page.keyboard.press("/")
        await page.keyboard.type(failed.id)
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/console/records/pending_jobs/**")
        assert "No attempts are left" in await page.locator(".why").inner_text()

        # Who moved this record?
        history = page.locator("section", has=page.locator("#timeline"))
        assert await history.locator(".meta").count() > 0
        await menu("Audit log")
        assert await page.locator("table.rows").count() == 1

        # Are we keeping up? Which stage is the slowest? Today against yesterday
        await menu("Stages")
        text = await main.inner_text()
        assert "p99" in text
        assert "Time to drain" in text or "Not at this rate" in text
        await main.get_by_role("link", name="Charts", exact=True).click()
        await page.wait_for_url("**/console/charts")
        assert await main.locator("svg").count() > 0
        assert await page.get_by_text("The numbers as a table").first.is_visible()

        # What happened last week?
        await page.goto(f"{own_world.url}/console/charts?over=week")
        assert await main.locator("svg").count() > 0
        await menu("Runs")
        await page.get_by_label("Outcome").select_option("error")
        await page.get_by_role("button", name="Filter").click()
        assert "status=error" in page.url

        # Retry one type of error
        await menu("Dead letters")
        group = page.locator(".group").filter(has_text="invalid_media").first
        await group.get_by_role("link", name="Retry…").click()
        await page.get_by_label("Reason").fill("the links work again")
        await page.get_by_role("button", name="Retry").click()
        assert await page.locator(".flash").count() == 1

        # Fix and retry a dead letter
        await menu("Dead letters")
        await page.get_by_role("link", name="List", exact=True).click()
        await page.locator("table.rows tbody a").first.click()
        await page.locator("#reason-redrive").fill("corrected")
        await page.get_by_role("button", name="Retry").click()
        assert await page.locator(".flash").count() == 1

        # Export a list
        await menu("Records")
        await main.locator("tr", has_text="posts").locator(".states a").first.click()
        assert "status=" in page.url
        async with page.expect_download() as download:
            await page.get_by_role("link", name="CSV").click()
        assert (await download.value).suggested_filename.endswith(".csv")

        # From an alert to its cause
        await menu("Alerts")
        await page.locator(".alert-list li a").first.click()
        assert "/console/" in page.url
        assert "/console/alerts" not in page.url

        # Where does this number come from?
        await page.goto(own_world.url)
        await page.keyboard.press("/")
        await page.keyboard.type("apolo-2024:balance")
        await page.keyboard.press("Enter")
        await page.get_by_role("link", name="Open trace view").click()
        await page.wait_for_url("**/console/documents/**")
        await page.locator("[data-value]").first.click()
        assert await page.locator(".values li.on").count() == 1
