"""While the store is unavailable, the console reports it and recovers on its own."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from web.console.browser import pages
from web.console.conftest import NewPage
from web.console.world import World, served

from esclusa.model.errors import StoreUnavailable
from esclusa.ports.store import Store

# The browser, the server and the tests share one event loop.
pytestmark = pytest.mark.asyncio(loop_scope="session")

MESSAGE = (
    "postgresql://esclusa:hunter2@db/esclusa does not answer"
    " (host=db user=esclusa password='hunter 3')"
)


def make_unavailable(world: World, patch: pytest.MonkeyPatch) -> None:
    """Let every call of the store fail from now on."""

    async def unavailable(*_: object, **__: object) -> None:
        raise StoreUnavailable(MESSAGE)

    for name, _ in inspect.getmembers(Store, inspect.iscoroutinefunction):
        if name != "close":
            patch.setattr(world.runtime.store, name, unavailable, raising=False)


async def test_health_shows_which_check_fails(
    own_world: World, new_page: NewPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with new_page(locale="es-CL") as page:
        await page.goto(f"{own_world.url}/console/health")
        assert await page.locator("table").count() == 2
        make_unavailable(own_world, monkeypatch)
        answer = await page.goto(f"{own_world.url}/console/health")
        assert answer is not None
        assert answer.status == 200
        row = await page.locator("tr", has_text="store").inner_text()
        assert "Falla" in row
        assert "no responde" in row
        assert "OK" in await page.locator("tr", has_text="artifacts").inner_text()
        assert await page.locator("table").count() == 1  # no table of counts
        assert "hunter" not in await page.content()
        monkeypatch.undo()
        await page.goto(f"{own_world.url}/console/health")
        assert await page.locator("table").count() == 2


# Pages that need no store, or use cached counts.
WITHOUT_STORE = ("actions", "health", "keyboard", "kinds", "time-zone", "views")


@pytest.mark.parametrize("token", ["", "let-me-look"])
async def test_every_page_reports_the_unavailable_store(
    new_page: NewPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    async with (
        served(tmp_path, tokens=f"eva={token}:read" if token else "") as world,
        new_page(locale="es-CL") as page,
    ):
        if token:
            await page.request.post(f"{world.url}/console/sign-in", form={"token": token})
        paths = await pages(world)
        make_unavailable(world, monkeypatch)
        for name, path in paths.items():
            if name in WITHOUT_STORE:
                continue
            answer = await page.goto(world.url + path)
            assert answer is not None
            assert answer.status == 503, name
            assert await page.locator("h1").inner_text() == "Base de datos no disponible"
            assert await page.locator(".menu a").count() > 10
            assert "hunter" not in await page.content(), name
        await page.get_by_role("button", name="English").click()
        assert await page.locator("h1").inner_text() == "Store unavailable"
        await page.locator(".error-page").get_by_role("link", name="Health").click()
        assert "it does not answer" in await page.locator("table").inner_text()


async def test_an_open_page_shows_the_outage_and_its_end(
    own_world: World, new_page: NewPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with new_page() as page:
        await page.clock.install()
        await page.goto(f"{own_world.url}/console/cycles")
        make_unavailable(own_world, monkeypatch)
        await page.clock.run_for(6000)
        await page.locator("main h1", has_text="Store unavailable").wait_for()
        await page.goto(f"{own_world.url}/console/budgets")
        assert await page.locator("h1").inner_text() == "Store unavailable"
        monkeypatch.undo()
        await page.clock.run_for(6000)
        await page.locator("h1", has_text="Budgets").wait_for()
