"""Every page in a browser: accessible, without scripts, on a phone, in both languages."""

from __future__ import annotations

from pathlib import Path

import axe_playwright_python
import pytest
from web.console.browser import pages, ready
from web.console.conftest import NewPage
from web.console.world import LONG, Picture, World, served

from esclusa import Record
from esclusa.model.system_records import Alert, Audit, DeadLetter

# The browser, the server and the tests share one event loop.
pytestmark = pytest.mark.asyncio(loop_scope="session")

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
DARK = (
    *("map", "charts", "filters", "records", "record", "dead-letters", "budgets", "cycles"),
    *("alerts", "trace", "alert-rules", "action"),
)
NAMES = {
    *("map", "stages", "kinds", "records", "filtered", "record", "preview", "views", "view"),
    *("dead-letters", "dead-letter-list", "dead-letter", "redrive", "cycles", "runs", "run"),
    *("budgets", "workers", "alerts", "audit", "archive", "health", "trace", "search"),
    *("charts", "stage-charts", "times", "time-zone", "alert-rules", "not-found"),
    *("action", "actions", "columns", "filters", "keyboard", "pipeline"),
}
WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
"""Pixels by which a page is wider than the window."""


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_no_page_has_a_serious_violation(world: World, new_page: NewPage, theme: str) -> None:
    paths = await pages(world)
    assert set(paths) == NAMES
    found = []
    async with new_page(color_scheme=theme, bypass_csp=True) as page:
        for name, path in paths.items():
            if theme == "dark" and name not in DARK:
                continue
            answer = await page.goto(world.url + path)
            assert answer is not None
            assert answer.status == (404 if name == "not-found" else 200), name
            await ready(page)
            await page.evaluate(AXE)
            # Themes differ only in color, and the rows of a table are all alike.
            rules = "" if theme == "light" else ", runOnly: ['color-contrast']"
            few = "{exclude: [['tbody tr:nth-child(n+3)'], ['.values li:nth-child(n+4)']]}"
            results = await page.evaluate(f"axe.run({few}, {{resultTypes: ['violations']{rules}}})")
            found += [
                f"{name}: {v['id']}: {v['nodes'][0]['html'][:160]}"
                f" {v['nodes'][0]['failureSummary'][:200]}"
                for v in results["violations"]
                if v["impact"] in ("serious", "critical")
            ]
    assert not found


async def test_pages_obey_their_content_security_policy(world: World, new_page: NewPage) -> None:
    """An inline script or style would be an error in the browser, which fails ``new_page``."""
    async with new_page() as page:
        for name, path in (await pages(world)).items():
            answer = await page.goto(world.url + path)
            assert answer is not None
            policy = answer.headers["content-security-policy"]
            assert "script-src 'self'" in policy, name
            assert "unsafe" not in policy
            await ready(page)


async def test_pages_work_without_scripts(world: World, new_page: NewPage) -> None:
    async with new_page(java_script_enabled=False) as page:
        await page.goto(world.url)
        node = page.locator("[data-graph=pending_jobs] .node[data-state=done]")
        assert int(await node.locator(".count").inner_html()) > 100
        await node.click()
        await page.wait_for_url("**/console/records/pending_jobs?status=done")
        assert await page.locator("tbody tr").count() == 50
        await page.get_by_role("link", name="Next page").click()
        await page.wait_for_load_state()
        assert await page.locator("tbody tr").count() == 50
        await page.locator("tbody th a").first.click()
        assert await page.locator("h1.id").inner_text() != ""
        assert "Finished: done is a terminal state" in await page.locator(".why").inner_text()
        await page.goto(f"{world.url}/console/documents/apolo-2024/apolo-2024:balance")
        await page.locator("[data-value]").nth(3).click()
        assert await page.locator(".values li:target dl.more").is_visible()


async def test_no_page_is_wider_than_a_phone(world: World, new_page: NewPage) -> None:
    async with new_page(viewport={"width": 360, "height": 740}, has_touch=True) as page:
        for name, path in (
            (await pages(world)) | {"long": f"/console/records/pictures/{LONG}"}
        ).items():
            await page.goto(world.url + path)
            wide = await page.evaluate(WIDE)
            assert wide <= 1, name
            if name == "record":  # its lifecycle scrolls; the current state is in view
                box = await page.locator(".graph .node.current").bounding_box()
                assert box is not None
                assert 0 <= box["x"] <= 360 - box["width"]


async def test_long_words_do_not_widen_a_page(own_world: World, new_page: NewPage) -> None:
    """Long ids in a reason, a title and an address."""
    reason = f"job {LONG}{LONG}"
    await own_world.runtime.engine.records.insert(
        [
            Picture(
                id=f"p-{LONG}",
                title=LONG * 2,
                imagen_url=f"https://x.example/{LONG * 2}",
                status="error",
            )
        ]
    )
    await own_world.runtime.operations("tests").move(
        "pictures", "pending", ids=[f"p-{LONG}"], reason=reason
    )
    for width in (360, 1280):
        async with new_page(viewport={"width": width, "height": 740}) as page:
            for path in (
                f"pictures/p-{LONG}",
                "pictures?q=p-",
                f"pictures?q={LONG[:9]}",
                "pictures?title__eq=" + LONG * 2,
            ):
                await page.goto(f"{own_world.url}/console/records/{path}")
                wide = await page.evaluate(WIDE)
                assert wide <= 1, (width, path)


async def test_hostile_texts_are_shown_as_text(own_world: World, new_page: NewPage) -> None:
    """A very long word, a script, a right-to-left mark and a template, on every page."""
    now = own_world.runtime.engine.clock.now()
    hostile = (
        "x" * 10_000,
        "<script>document.title = 'taken'</script>",
        "\u202eabc",
        "{n} {{7*7}} %s",
    )
    rows: list[Record] = []
    for n, text in enumerate(hostile):
        rows += [
            Alert(name=text, subject=text, message=text, begun_at=now, details={text: text}),
            Audit(
                who=text,
                verb=text,
                subject=text,
                affected=1,
                reason=text,
                done_at=now,
                filter={text: text},
            ),
            DeadLetter(
                id=f"hostile-{n}",
                table_name="pictures",
                record_id="L" * 600,
                state_before=text,
                error_type=text,
                error_message=text,
                payload={text: text},
            ),
            Picture(id="L" * 600 if n == 0 else f"h{n}", title=text, status="error"),
        ]
    await own_world.runtime.store.insert(rows)
    paths = (
        "alerts",
        "audit",
        "dead-letters",
        "dead-letters/list",
        "dead-letters/hostile-0",
        "dead-letters/hostile-1",
        "q" * 3000,
    )
    for width in (360, 1280):
        async with new_page(viewport={"width": width, "height": 740}) as page:
            for path in (
                *paths,
                "records/pictures?q=h",
                f"records/pictures/{'L' * 600}",
                "records/pictures/h1",
            ):
                await page.goto(f"{own_world.url}/console/{path}")
                wide = await page.evaluate(WIDE)
                assert wide <= 1, (width, path[:40])
                assert await page.title() != "taken"
    async with new_page() as page:
        await page.goto(f"{own_world.url}/console/alerts")
        reversed_text = page.locator("h2", has_text="\u202eabc")
        meta = page.locator(".alert-list li").filter(has=reversed_text).locator(".meta")
        box = (
            "e => { const box = n => { const r = document.createRange(); r.selectNode(n);"
            " return r.getBoundingClientRect() };"
        )
        name, time = await meta.evaluate(
            f"{box} return [box(e.querySelector('bdi')).left, box(e.querySelector('time')).left] }}"
        )
        assert name < time  # the reversed text does not reorder what follows it
        time, status = await meta.evaluate(
            f"{box} return [box(e.querySelector('time')).right, box(e.lastChild).right] }}"
        )
        assert time < status


async def test_the_trace_view_without_a_picture_says_so(world: World, new_page: NewPage) -> None:
    async with new_page() as page:
        await page.route("**/pages/0.png", lambda route: route.fulfill(status=404, body=""))
        await page.goto(f"{world.url}/console/documents/apolo-2024/apolo-2024:balance")
        assert await page.get_by_text("This page cannot be shown.").is_visible()
        assert await page.locator("[data-value]").count() > 3  # the values are listed anyway
        answer = await page.goto(f"{world.url}/console/documents/another/apolo-2024:balance")
        assert answer is not None
        assert answer.status == 404


async def test_an_invalid_filter_leads_back_to_the_list(world: World, new_page: NewPage) -> None:
    async with new_page() as page:
        answer = await page.goto(f"{world.url}/console/records/pending_jobs?archived=true")
        assert answer is not None
        assert (answer.status, "keeps no archive" in await page.content()) == (400, True)
        await page.goto(f"{world.url}/console/records/pending_jobs?created_at__gte=yesterday")
        assert "for example 2026-11-16T12:00:00Z" in await page.locator(".error-page").inner_text()
        await page.get_by_role("link", name="Remove the filter").click()
        assert page.url == f"{world.url}/console/records/pending_jobs"
        assert await page.locator("tbody tr").count() > 0
    async with new_page(locale="es-CL") as page:
        await page.goto(f"{world.url}/console/charts?over=month")
        assert "El valor de over no es válido." in await page.locator("main").inner_text()


async def test_the_map_is_live(own_world: World, new_page: NewPage) -> None:
    """Counts change and dots move along the arrows without a reload."""
    async with new_page() as page:
        await page.goto(own_world.url)
        await ready(page)
        node = page.locator("[data-graph=pictures] .node[data-state=pending] .count")
        before = await node.text_content()
        engine = own_world.runtime.engine
        await engine.run_cycle("media.download")
        count = "[data-graph=pictures] .node[data-state=pending] .count"
        await page.wait_for_function(
            f"before => document.querySelector('{count}').textContent !== before", arg=before
        )
        await page.locator("[data-graph=pictures] .edge.moving").first.wait_for(state="attached")


async def test_a_stuck_state_looks_stuck(world: World, new_page: NewPage) -> None:
    async with new_page() as page:
        await page.goto(world.url)
        stuck = page.locator("[data-graph=pictures] .node[data-state=pending]")
        assert "stuck" in (await stuck.get_attribute("class") or "").split()
        assert "stuck" in (await stuck.get_attribute("aria-label") or "")


async def test_languages_and_themes(world: World, new_page: NewPage) -> None:
    async with new_page(locale="es-CL") as page:
        await page.goto(world.url)
        assert await page.locator("h1").inner_text() == "Mapa"
        await page.get_by_role("button", name="English").click()
        assert await page.locator("h1").inner_text() == "Map"
        await page.goto(f"{world.url}/console/budgets")
        assert await page.locator("h1").inner_text() == "Budgets"
        await page.get_by_role("button", name="Español").click()
        assert await page.locator("h1").inner_text() == "Presupuestos"
        await page.get_by_role("button", name="Oscuro").click()
        assert await page.locator("html").get_attribute("data-theme") == "dark"
        assert (
            await page.evaluate("getComputedStyle(document.body.parentElement).backgroundColor")
            == "rgb(13, 20, 19)"
        )


async def test_why_is_answered_in_spanish(world: World, new_page: NewPage) -> None:
    job = (
        await world.runtime.read_model.records("pending_jobs", {"status": "failed"}, limit=1)
    ).items[0]
    async with new_page(locale="es") as page:
        await page.goto(f"{world.url}/console/records/pending_jobs/{job.id}")
        assert "Agotó sus intentos" in await page.locator(".why").inner_text()
        assert "No avanza por sí solo" in await page.locator(".why").inner_text()
        assert "error permanente" in await page.locator(".timeline").inner_text()
        waiting = (
            await world.runtime.read_model.records(
                "pictures", {"status": "pending", "title": "Atrasada 0"}, limit=1
            )
        ).items[0]
        await page.goto(f"{world.url}/console/records/pictures/{waiting.id}")
        assert "se ejecuta cada 5m; próxima vez" in await page.locator(".why").inner_text()


async def test_a_record_shows_its_history_and_related_records(
    world: World, new_page: NewPage
) -> None:
    job = (
        await world.runtime.read_model.records("pending_jobs", {"status": "failed"}, limit=1)
    ).items[0]
    async with new_page() as page:
        await page.goto(f"{world.url}/console/records/pending_jobs/{job.id}")
        body = await page.locator("main").inner_text()
        assert "s3cr3t" not in await page.content()
        assert "forbidden" in body
        assert "attempt 1" in body
        await page.locator(".related").filter(has_text="posts").get_by_role("link").first.click()
        await page.wait_for_url("**/console/records/posts/**")
        await (
            page.locator(".related")
            .filter(has_text="pending_jobs")
            .get_by_role("link")
            .first.click()
        )
        await page.wait_for_url(f"**/console/records/pending_jobs/{job.id}")


async def test_a_record_shows_the_log_lines_of_its_attempts(
    world: World, new_page: NewPage
) -> None:
    pictures = await world.runtime.read_model.records("pictures", {"status": "error"}, limit=50)
    picture = next(p for p in pictures.items if p.last_error and p.last_error.get("timestamp"))
    async with new_page() as page:
        await page.goto(f"{world.url}/console/records/pictures/{picture.id}")
        lines = await page.locator(".log-lines p").all_inner_texts()
        texts = [" ".join(line.split()[2:]) for line in lines[:2]]
        assert texts == ["info asks the CDN", "info has an answer status=200 token=***"]


async def test_search_and_filters_are_part_of_the_address(world: World, new_page: NewPage) -> None:
    async with new_page() as page:
        await page.goto(world.url)
        await page.keyboard.press("/")
        await page.keyboard.type("9f000023")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/console/records/pending_jobs/9f000023")
        await page.goto(f"{world.url}/console/records/pending_jobs")
        await page.get_by_label("Id or filter").fill("platform=twitter retry_count<=3")
        await page.get_by_role("button", name="Find").click()
        await page.wait_for_url("**?platform=twitter&retry_count__lte=3")
        await page.get_by_label("Field").select_option("result_url")
        await page.locator("select[name=_op]").select_option("empty")
        await page.get_by_role("button", name="Add filter").click()
        await page.wait_for_url("**&result_url__null=true")
        assert await page.locator(".chips li").count() == 3
        await page.locator(".chips a").first.click()
        assert "platform" not in page.url
        answer = await page.goto(f"{world.url}/console/records/pending_jobs?nothing=1")
        assert answer is not None
        assert answer.status == 400
        assert "has no field nothing" in await page.locator("main").inner_text()


async def test_removing_one_filter_keeps_the_others(world: World, new_page: NewPage) -> None:
    async with new_page() as page:
        query = "status=pending&platform=twitter&attempts__gte=0&q=9f"
        full = f"{world.url}/console/records/pending_jobs?{query}"
        await page.goto(full)
        await page.locator(".chips li").filter(has_text="platform").get_by_role("link").click()
        assert page.url.endswith("?status=pending&attempts__gte=0&q=9f")
        await page.goto(full)
        await page.locator(".chips li").filter(has_text="begins with").get_by_role("link").click()
        assert page.url.endswith("?status=pending&platform=twitter&attempts__gte=0")


async def test_a_quoted_value_is_one_value(own_world: World, new_page: NewPage) -> None:
    await own_world.runtime.engine.records.insert(
        [Picture(title=title) for title in ("red, green", "red", "null")]
    )
    async with new_page() as page:
        for title in ("red, green", "null"):
            await page.goto(f"{own_world.url}/console/records/pictures")
            await page.get_by_label("Id or filter").fill(f'title="{title}"')
            await page.get_by_role("button", name="Find").click()
            assert await page.locator("tbody tr").count() == 1
            assert title in await page.locator("tbody tr").inner_text()


async def test_a_click_on_nothing_does_not_stop_the_refresh(
    own_world: World, new_page: NewPage
) -> None:
    async with new_page() as page:
        await page.clock.install()
        await page.goto(f"{own_world.url}/console/cycles")
        await page.locator("h1").click()
        await own_world.runtime.operations("tests").pause("tenders.ingest", "test")
        async with page.expect_response("**/console/cycles"):
            await page.clock.run_for(6000)
        await page.locator(".cycle.paused").wait_for()
        await page.locator("summary").first.click()  # an open form stops the refresh
        await own_world.runtime.operations("tests").resume("tenders.ingest", "")
        await page.clock.run_for(12_000)
        assert await page.locator(".cycle.paused").count() == 1


async def test_the_map_is_live_again_after_going_back(own_world: World, new_page: NewPage) -> None:
    async with new_page() as page:
        await page.goto(own_world.url)
        await page.locator("[data-live].on").wait_for()
        async with page.expect_request("**/console/live"):
            await page.evaluate(
                "() => { dispatchEvent(new PageTransitionEvent('pagehide', { persisted: true }));"
                " dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true })) }"
            )
        await own_world.runtime.engine.records.insert([Picture(title="new")])
        await page.locator("[data-total=pictures]", has_text="154").wait_for()


async def test_trace_view(world: World, new_page: NewPage) -> None:
    async with new_page() as page:
        await page.goto(f"{world.url}/console/records/documentos/apolo-2024:balance")
        await page.get_by_role("link", name="Open trace view").click()
        assert await page.locator(".boxes rect").count() == 26
        await page.locator("[data-value]").nth(5).click()
        chosen = await page.locator("rect.on").get_attribute("data-box")
        assert chosen == await page.locator("[data-value]").nth(5).get_attribute("data-value")
        await page.locator(".boxes rect").nth(2).click()
        assert await page.locator(".values li.on [data-value]").get_attribute(
            "data-value"
        ) == await page.locator(".boxes rect").nth(2).get_attribute("data-box")
        await page.keyboard.press("ArrowDown")
        assert await page.locator(".values li.on [data-value]").get_attribute(
            "data-value"
        ) == await page.locator(".boxes rect").nth(3).get_attribute("data-box")
        await page.keyboard.press("+")
        assert await page.locator("[data-zoom-level]").inner_text() == "125 %"
        await page.get_by_role("button", name="Fit").click()
        assert await page.locator("[data-zoom-level]").inner_text() == "100 %"
        await page.get_by_label("Find a value").fill("plusvalía")
        assert await page.locator("[data-value]:visible").count() == 2
        await page.locator(".sheet-view").focus()
        await page.keyboard.press("ArrowRight")
        await page.wait_for_url("**page=1**")
        assert await page.locator(".boxes rect").count() == 1


async def test_empty_pages_explain_themselves(new_page: NewPage, tmp_path: Path) -> None:
    expected = {
        "/": "esclusa worker",
        "/console/dead-letters": "No dead letters",
        "/console/budgets": "Window('day', 400)",
        "/console/runs": "esclusa run media.download",
        "/console/alerts": "ESCLUSA_ALERT_WEBHOOK",
        "/console/audit": "No actions yet",
        "/console/records/pictures": "/api/records/pictures",
        "/console/archive": "archive=True",
        "/console/workers": "esclusa worker",
    }
    async with served(tmp_path, empty=True, apps="media") as world, new_page() as page:
        for path, text in expected.items():
            await page.goto(world.url + path)
            assert text in await page.locator("main").inner_text(), path


async def test_views_of_a_pipeline(world: World, new_page: NewPage) -> None:
    """They are on the map with their counts; each row leads to its record."""
    async with new_page(locale="es-CL") as page:
        await page.goto(world.url)
        link = page.locator(".views-line a", has_text="errors")
        count = int(await link.locator("b").inner_text())
        await link.click()
        assert "Imágenes que no se pudieron descargar" in await page.locator(".lead").inner_text()
        assert await page.locator("tbody tr").count() == count
        lengths = await page.locator("tbody td.text").evaluate_all(
            "cells => cells.map(cell => cell.textContent.length)"
        )
        assert min(lengths, default=99) > 20, "short cells must not take room from long ones"
        await page.locator("tbody th a").first.click()
        assert "error" in await page.locator("main").inner_text()
        await page.goto(f"{world.url}/console/views/media.summary")
        assert "success" in await page.locator("tbody").inner_text()


async def test_health_shows_checks_and_tables(world: World, new_page: NewPage) -> None:
    async with new_page() as page:
        await page.goto(f"{world.url}/console/health")
        checks = page.locator("table").first
        assert "up to date" in await checks.locator("tr", has_text="schema").inner_text()
        late = page.locator("table").last.locator("tr", has_text="pictures")
        assert "h" in (await late.locator("td").nth(4).inner_text()), (
            "the oldest due record is more than an hour late"
        )
