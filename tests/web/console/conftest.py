"""One browser and one world for all tests; a test that changes records uses ``own_world``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright
from web.console.browser import CHROMIUM
from web.console.world import World, served

NewPage = Callable[..., AbstractAsyncContextManager[Page]]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        await launched.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with served(tmp_path_factory.mktemp("world")) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def own_world(tmp_path: Path) -> AsyncIterator[World]:
    async with served(tmp_path) as made:
        yield made


@pytest.fixture
def new_page(browser: Browser) -> NewPage:
    """Open a page in a new browser context. An error in the browser's console fails the test."""

    @asynccontextmanager
    async def open_page(**options: Any) -> AsyncIterator[Page]:
        context = await browser.new_context(
            **{"locale": "en-GB", "viewport": {"width": 1280, "height": 800}, **options}
        )
        page = await context.new_page()
        page.set_default_timeout(10_000)
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on(
            "console",
            lambda message: (
                faults.append(message.text)
                if message.type == "error" and "Failed to load resource" not in message.text
                else None
            ),
        )
        try:
            yield page
            assert not faults
        finally:
            await context.close()

    return open_page
