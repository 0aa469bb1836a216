"""Find records: errors, texts, times, suggestions, columns and saved filters, in a browser."""

from __future__ import annotations

import pytest
from web.console.conftest import NewPage
from web.console.world import World

# The browser, the server and the tests share one event loop.
pytestmark = pytest.mark.asyncio(loop_scope="session")

LIST = "/console/records/pending_jobs"


async def test_records_are_found_by_error_text_and_time(world: World, new_page: NewPage) -> None:
    async with new_page() as page:
        for typed, address, chip in (
            ("error_type=timeout", "error_type=timeout", "error_type = timeout"),
            ('error_message~"did not"', "error_message__contains=did+not", "contains did not"),
            ("updated_at>=-2h", "updated_at__gte=-2h", "updated_at ≥ -2h"),
        ):
            await page.goto(f"{world.url}{LIST}")
            await page.get_by_label("Id or filter").fill(typed)
            await page.get_by_role("button", name="Find").click()
            assert page.url.endswith(f"{LIST}?{address}")
            chips = await page.locator(".chips").inner_text()
            assert chip in " ".join(chips.split())
        await page.goto(f"{world.url}{LIST}?status=failed")
        error = await page.locator("small.err").first.inner_text()
        await page.locator("select[name=_field]").select_option("error_type")
        await page.locator("input[name=_value]").fill(error)
        await page.get_by_role("button", name="Add filter").click()
        shown = await page.locator("small.err").all_inner_texts()
        assert shown
        assert set(shown) == {error}


async def test_filters_are_suggested_while_typing(world: World, new_page: NewPage) -> None:
    options = "list => [...list.options].map((option) => option.value)"
    async with new_page() as page:
        await page.goto(f"{world.url}{LIST}")
        box, found = page.get_by_label("Id or filter"), page.locator("#suggested")
        assert "status=failed" in await found.evaluate(options)
        for typed, suggested in (
            ("plat", "platform="),
            ("status=fai", "status=failed"),
            ("status=failed error_t", "status=failed error_type="),
            ("platform=tw", "platform=twitter"),
            ("platform=x,tw", "platform=x,twitter"),
            ("updated_at>=-2", "updated_at>=-24h"),
        ):
            await box.fill(typed)
            await page.locator(f"input[data-suggested='{typed}']").wait_for()
            assert suggested in await found.evaluate(options), typed


async def test_without_scripts_there_are_first_suggestions_columns_and_files(
    world: World, new_page: NewPage
) -> None:
    async with new_page(java_script_enabled=False) as page:
        await page.goto(f"{world.url}{LIST}?status=failed")
        assert await page.locator("#suggested option[value='platform=']").count() == 1
        await page.get_by_text("Columns", exact=True).click()
        while await page.locator(".tool input:checked").count():
            await page.locator(".tool input:checked").first.uncheck()
        await page.get_by_label("last_error.type").check()
        await page.get_by_role("button", name="Show these").click()
        assert page.url.endswith(f"{LIST}?status=failed&columns=last_error.type")
        heads = await page.locator("thead th").all_inner_texts()
        assert [head for head in heads if head != "Select all"] == [
            "id",
            "State",
            "last_error.type",
        ]
        async with page.expect_download() as started:
            await page.get_by_role("link", name="CSV").click()
        lines = (await (await started.value).path()).read_text().splitlines()
        assert lines[0] == "id,status,last_error.type"
        assert {line.split(",")[1] for line in lines[1:]} == {"failed"}
        await page.get_by_text("Columns", exact=True).click()
        await page.get_by_role("link", name="Usual columns").click()
        assert page.url.endswith(f"{LIST}?status=failed")


async def test_a_list_is_saved_renamed_and_deleted(own_world: World, new_page: NewPage) -> None:
    async with new_page() as page:
        await page.goto(f"{own_world.url}{LIST}?status=failed&columns=platform")
        await page.get_by_text("Save this list").click()
        await page.get_by_label("Name").fill("what failed")
        await page.keyboard.press("Enter")
        assert "what failed is saved" in await page.locator(".flash").inner_text()
        await page.goto(f"{own_world.url}{LIST}")
        await page.get_by_role("link", name="what failed").click()
        assert page.url.endswith(f"{LIST}?status=failed&columns=platform")
        await page.get_by_role("link", name="Manage").click()
        await page.locator("td summary").click()
        await page.get_by_label("Name").fill("failed")
        await page.get_by_role("button", name="Rename").click()
        await page.get_by_role("link", name="failed", exact=True).wait_for()
        await page.locator("td summary").click()
        await page.get_by_role("button", name="Delete").click()
        assert "failed is deleted" in await page.locator(".flash").inner_text()
        assert "No saved filters yet" in await page.locator("main").inner_text()
        await page.goto(f"{own_world.url}/console/audit")
        text = await page.locator("main").inner_text()
        for verb in ("save filter", "rename filter", "delete filter"):
            assert verb in text
