"""A pipeline brings its own console pages, buttons, files and translations."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from fastapi import Request, Response
from web.console.world import World, served

from esclusa import App, Lifecycle, NotFound, Record
from esclusa.web import ConsoleExtension


class Parcel(Record, table="parcels", key="number"):
    number: str
    weight: int = 0
    lifecycle = Lifecycle("packed -> sent")


class Crate(Record, table="crates", key="number"):
    number: str
    lifecycle = Lifecycle("packed -> sent")


PAGE = """{% extends "base.html" %}
{% block head %}<link rel="stylesheet" href="{{ static('post/label.css') }}">{% endblock %}
{% block main %}<h1>{{ _("Label") }} {{ parcel.number }}</h1>
{{ state(parcel.status, role) }}{% endblock %}
"""
SPANISH = 'msgid "Label"\nmsgstr "Etiqueta"\n\nmsgid "Print label"\nmsgstr "Imprimir etiqueta"\n'


def shipping(files: Path) -> App:
    """A pipeline with one page, and a button on the page of each light parcel."""
    app = App("post", records=[Parcel, Crate])

    @app.console
    def console(extension: ConsoleExtension) -> None:
        extension.files(files)

        @extension.router.get("/labels/{number}")
        async def label(request: Request, number: str) -> Response:
            parcel = await extension.runtime.read_model.record("parcels", number)
            return await extension.page(
                request, "label.html", parcel=parcel, role=extension.role(parcel)
            )

        @extension.router.get("/missing")
        async def missing() -> Response:
            raise NotFound("the printer is missing")

        @extension.button(Parcel, "Print label")
        def print_label(parcel: Parcel) -> str | None:
            if parcel.weight > 10:
                return None
            return extension.url("console", "post", "labels", parcel.number)

    return app


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    files = tmp_path / "console"
    for name, text in (
        ("templates/label.html", PAGE),
        ("static/label.css", "h1 { color: teal }"),
        ("static/notes.txt", "not served"),
        ("languages/es.po", SPANISH),
    ):
        (files / name).parent.mkdir(parents=True, exist_ok=True)
        (files / name).write_text(text)
    app = shipping(files)
    options = {"empty": True, "apps": "post", "root_path": "/lock"}
    async with served(tmp_path, declared={"post": app}, **options) as world:
        await world.runtime.engine.records.insert(
            [Parcel(number="a-1"), Parcel(number="b", weight=50), Crate(number="c")]
        )
        yield world


async def get(world: World, path: str, language: str = "en") -> tuple[int, str]:
    async with (
        aiohttp.ClientSession(headers={"Accept-Language": language}) as session,
        session.get(f"{world.url}/lock{path}") as answer,
    ):
        return answer.status, await answer.text()


async def test_a_page_has_the_look_and_the_language_of_the_console(world: World) -> None:
    status, page = await get(world, "/console/post/labels/a-1", "es")
    assert status == 200
    assert "<h1>Etiqueta a-1</h1>" in page
    assert 'class="state resting"' in page
    assert '<nav class="menu"' in page
    assert "Fallidos definitivos" in page
    assert "<h1>Label a-1</h1>" in (await get(world, "/console/post/labels/a-1"))[1]


async def test_a_button_is_on_the_pages_of_its_kind(world: World) -> None:
    _, page = await get(world, "/console/records/parcels/a-1", "es")
    assert 'href="/lock/console/post/labels/a-1">Imprimir etiqueta</a>' in page
    for path in ("parcels/b", "crates/c"):
        status, page = await get(world, f"/console/records/{path}", "es")
        assert (status, "Imprimir etiqueta" in page) == (200, False)


async def test_static_files_are_served_by_type(world: World) -> None:
    _, page = await get(world, "/console/post/labels/a-1")
    assert '<link rel="stylesheet" href="/lock/console/static/post/label.css?v=' in page
    assert await get(world, "/console/static/post/label.css") == (200, "h1 { color: teal }")
    assert (await get(world, "/console/static/post/notes.txt"))[0] == 404
    assert (await get(world, "/console/static/post/../languages/es.po"))[0] == 404


async def test_an_error_is_a_page_of_the_console(world: World) -> None:
    status, page = await get(world, "/console/post/missing", "es")
    assert status == 404
    assert "<h1>No encontrado</h1>" in page
    assert "the printer is missing" in page
