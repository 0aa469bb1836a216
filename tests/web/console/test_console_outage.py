"""While the store is away: the console says so, in the visitor's language, and comes back by itself."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from web.console.browser import PAGES
from web.console.conftest import NewPage
from web.console.world import World, served

from esclusa.model.errors import StoreUnavailable
from esclusa.ports.store import Store

pytestmark = pytest.mark.asyncio(
    loop_scope="session"
)  # one loop for the browser, the server and the tests

SAID = "postgresql://esclusa:hunter2@db/esclusa does not answer (host=db user=esclusa password='hunter 3')"


def goes_away(world: World, patch: pytest.MonkeyPatch) -> None:
    """Whatever is asked of the store from now on fails."""

    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable(SAID)

    for name, _ in inspect.getmembers(Store, inspect.iscoroutinefunction):
        if name != "close":
            patch.setattr(world.runtime.store, name, away, raising=False)


async def test_health_tells_which_part_is_away(
    own_world: World, new_page: NewPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with new_page(locale="es-CL") as page:
        await page.goto(f"{own_world.url}/console/health")
        assert await page.locator("table").count() == 2
        goes_away(own_world, monkeypatch)
        answer = await page.goto(f"{own_world.url}/console/health")
        assert answer is not None
        assert answer.status == 200
        told = await page.locator("tr", has_text="store").inner_text()
        assert "por arreglar" in told
        assert "no responde" in told
        assert "en orden" in await page.locator("tr", has_text="artifacts").inner_text()
        assert await page.locator("table").count() == 1  # nothing is counted
        assert "hunter" not in await page.content()
        monkeypatch.undo()
        await page.goto(f"{own_world.url}/console/health")
        assert await page.locator("table").count() == 2


@pytest.mark.parametrize("token", ["", "let-me-look"])
async def test_every_page_says_that_the_store_is_away(
    new_page: NewPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    async with (
        served(tmp_path, tokens=f"eva={token}:read" if token else "") as world,
        new_page(locale="es-CL") as page,
    ):
        if token:
            await page.request.post(f"{world.url}/console/sign-in", form={"token": token})
        pages = await PAGES(world)
        goes_away(world, monkeypatch)
        for name, path in pages.items():
            if name in (
                "health",
                "kinds",
                "views",
            ):  # the first needs no store; what the others count is known for a while
                continue
            answer = await page.goto(world.url + path)
            assert answer is not None
            assert answer.status == 503, name
            assert await page.locator("h1").inner_text() == "El almacén no responde"
            assert await page.locator(".menu a").count() > 10
            assert "hunter" not in await page.content(), name
        await page.get_by_role("button", name="English").click()
        assert await page.locator("h1").inner_text() == "The store does not answer now"
        await page.locator(".wrong").get_by_role("link", name="Health").click()
        assert "it does not answer" in await page.locator("table").inner_text()


async def test_an_open_page_tells_of_the_outage_and_of_its_end(
    own_world: World, new_page: NewPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with new_page() as page:
        await page.clock.install()
        await page.goto(f"{own_world.url}/console/cycles")
        goes_away(own_world, monkeypatch)
        await page.clock.run_for(6000)
        await page.locator("main h1", has_text="The store does not answer now").wait_for()
        await page.goto(f"{own_world.url}/console/budgets")
        assert await page.locator("h1").inner_text() == "The store does not answer now"
        monkeypatch.undo()
        await page.clock.run_for(6000)
        await page.locator("h1", has_text="Budgets").wait_for()
