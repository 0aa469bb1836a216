"""Every page in a real browser: it is there, it is accessible, it reads without scripts and on a phone."""

from __future__ import annotations

from pathlib import Path

import axe_playwright_python
import pytest
from web.console.browser import PAGES, ready
from web.console.conftest import NewPage
from web.console.world import LONG, Picture, World, served

from esclusa import Record
from esclusa.model.system_records import Alert, Audit, DeadLetter

pytestmark = pytest.mark.asyncio(
    loop_scope="session"
)  # one loop for the browser, the server and the tests

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
DARK = ("map", "records", "record", "dead-letters", "budgets", "cycles", "alerts", "trace")
NAMES = (
    "map", "stages", "kinds", "records", "filtered", "record", "preview", "views", "view", "dead-letters", "dead-letter-list",
    "dead-letter", "redrive", "cycles", "runs", "run", "budgets", "workers", "alerts", "audit", "archive", "health", "trace",
    "search", "not-found",
)  # fmt: skip


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_no_page_has_a_serious_violation(world: World, new_page: NewPage, theme: str) -> None:
    pages = await PAGES(world)
    assert set(pages) == set(NAMES)
    found = []
    async with new_page(color_scheme=theme, bypass_csp=True) as page:
        for name, path in pages.items():
            if theme == "dark" and name not in DARK:
                continue
            answer = await page.goto(world.url + path)
            assert answer is not None
            assert answer.status == (404 if name == "not-found" else 200), name
            await ready(page)
            await page.evaluate(AXE)
            rules = (
                "" if theme == "light" else ", runOnly: ['color-contrast']"
            )  # themes differ by colour alone
            few = "{exclude: [['tbody tr:nth-child(n+3)'], ['.values li:nth-child(n+4)']]}"  # rows are all alike
            results = await page.evaluate(f"axe.run({few}, {{resultTypes: ['violations']{rules}}})")
            found += [
                f"{name}: {v['id']}: {v['nodes'][0]['html'][:160]} {v['nodes'][0]['failureSummary'][:200]}"
                for v in results["violations"]
                if v["impact"] in ("serious", "critical")
            ]
    assert not found


async def test_pages_obey_their_own_policy(world: World, new_page: NewPage) -> None:
    """No inline script or style: the browser would complain, and the page fixture fails on that."""
    async with new_page() as page:
        for name, path in (await PAGES(world)).items():
            answer = await page.goto(world.url + path)
            assert answer is not None
            policy = answer.headers["content-security-policy"]
            assert "script-src 'self'" in policy, name
            assert "unsafe" not in policy
            await ready(page)


async def test_pages_read_without_scripts(world: World, new_page: NewPage) -> None:
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
        assert "It is finished" in await page.locator(".why").inner_text()
        await page.goto(f"{world.url}/console/documents/apolo-2024/apolo-2024:balance")
        await page.locator("[data-value]").nth(3).click()
        assert await page.locator(".values li:target .more").is_visible()


async def test_on_a_phone_nothing_runs_out_of_the_page(world: World, new_page: NewPage) -> None:
    async with new_page(viewport={"width": 360, "height": 740}, has_touch=True) as page:
        for name, path in (
            (await PAGES(world)) | {"long": f"/console/records/pictures/{LONG}"}
        ).items():
            await page.goto(world.url + path)
            wide = await page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert wide <= 1, name
            if (
                name == "record"
            ):  # its lifecycle is wider than the page: the state that it is in is in sight
                box = await page.locator(".graph .node.current").bounding_box()
                assert box is not None
                assert 0 <= box["x"] <= 360 - box["width"]


async def test_long_words_of_others_stay_inside(own_world: World, new_page: NewPage) -> None:
    """An id in a reason, in a message and in a reference."""
    said = f"job {LONG}{LONG}"
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
        "pictures", "pending", ids=[f"p-{LONG}"], reason=said
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
                wide = await page.evaluate(
                    "document.documentElement.scrollWidth - document.documentElement.clientWidth"
                )
                assert wide <= 1, (width, path)


async def test_texts_of_others_that_are_hostile_stay_what_they_are(
    own_world: World, new_page: NewPage
) -> None:
    """A word of ten thousand letters, one that turns the line round, one that is a page: on every page that shows them."""
    now = own_world.runtime.engine.clock.now()
    hostile = (
        "x" * 10_000,
        "<script>document.title = 'taken'</script>",
        "\u202eabc",
        "{n} {{7*7}} %s",
    )
    rows: list[Record] = []
    for n, said in enumerate(hostile):
        rows += [
            Alert(name=said, subject=said, message=said, raised_at=now, details={said: said}),
            Audit(who=said, verb=said, subject=said, affected=1, reason=said, done_at=now, filter={said: said}),
            DeadLetter(
                id=f"hostile-{n}", table_name="pictures", record_id="L" * 600, state_before=said, error_type=said,
                error_message=said, payload={said: said},
            ),
            Picture(id="L" * 600 if n == 0 else f"h{n}", title=said, status="error"),
        ]  # fmt: skip
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
                wide = await page.evaluate(
                    "document.documentElement.scrollWidth - document.documentElement.clientWidth"
                )
                assert wide <= 1, (width, path[:40])
                assert await page.title() != "taken"
    async with new_page() as page:
        await page.goto(f"{own_world.url}/console/alerts")
        turned = page.locator(".alert-list li").filter(has=page.locator("h2", has_text="\u202eabc"))
        edges = "e => { const of = n => { const r = document.createRange(); r.selectNode(n); return r.getBoundingClientRect() };"
        ends = await turned.locator(".meta").evaluate(
            edges + " return [of(e.querySelector('bdi')).left, of(e.querySelector('time')).left] }"
        )
        assert ends[0] < ends[1]  # what we say after it still stands after it
        last = await turned.locator(".meta").evaluate(
            edges
            + " const r = of(e.lastChild); return [of(e.querySelector('time')).right, r.right] }"
        )
        assert last[0] < last[1]


async def test_a_page_without_a_picture_says_so(world: World, new_page: NewPage) -> None:
    async with new_page() as page:
        await page.route("**/pages/0.png", lambda route: route.fulfill(status=404, body=""))
        await page.goto(f"{world.url}/console/documents/apolo-2024/apolo-2024:balance")
        assert await page.get_by_text("This page cannot be drawn.").is_visible()
        assert await page.locator("[data-value]").count() > 3  # what was read is there
        answer = await page.goto(f"{world.url}/console/documents/another/apolo-2024:balance")
        assert answer is not None
        assert answer.status == 404


async def test_a_filter_that_cannot_be_answered_leads_back(world: World, new_page: NewPage) -> None:
    async with new_page() as page:
        answer = await page.goto(f"{world.url}/console/records/pending_jobs?archived=true")
        assert answer is not None
        assert (answer.status, "keeps no archive" in await page.content()) == (400, True)
        await page.goto(f"{world.url}/console/records/pending_jobs?created_at__gte=yesterday")
        assert "for example 2026-11-16T12:00:00Z" in await page.locator(".wrong").inner_text()
        await page.get_by_role("link", name="Without the filter").click()
        assert page.url == f"{world.url}/console/records/pending_jobs"
        assert await page.locator("tbody tr").count() > 0


async def test_the_map_lives(own_world: World, new_page: NewPage) -> None:
    """Counts change and dots run along the arrows without a reload."""
    async with new_page() as page:
        await page.goto(own_world.url)
        await ready(page)
        node = page.locator("[data-graph=pictures] .node[data-state=pending] .count")
        before = await node.text_content()
        engine = own_world.runtime.engine
        await engine.run_cycle("media.download")
        await page.wait_for_function(
            "before => document.querySelector('[data-graph=pictures] .node[data-state=pending] .count').textContent !== before",
            arg=before,
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


async def test_why_is_told_in_both_languages(world: World, new_page: NewPage) -> None:
    job = (
        await world.runtime.read_model.records("pending_jobs", {"status": "failed"}, limit=1)
    ).items[0]
    async with new_page(locale="es") as page:
        await page.goto(f"{world.url}/console/records/pending_jobs/{job.id}")
        assert "Se le acabaron los intentos" in await page.locator(".why").inner_text()
        assert "No se mueve solo" in await page.locator(".why").inner_text()
        waiting = (
            await world.runtime.read_model.records(
                "pictures", {"status": "pending", "title": "Atrasada 0"}, limit=1
            )
        ).items[0]
        await page.goto(f"{world.url}/console/records/pictures/{waiting.id}")
        assert "corre cada 5m, la próxima vez" in await page.locator(".why").inner_text()


async def test_a_record_shows_what_belongs_to_it(world: World, new_page: NewPage) -> None:
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


async def test_search_and_filters_make_addresses_to_share(world: World, new_page: NewPage) -> None:
    async with new_page() as page:
        await page.goto(world.url)
        await page.keyboard.press("/")
        await page.keyboard.type("9f000023")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/console/records/pending_jobs/9f000023")
        await page.goto(f"{world.url}/console/records/pending_jobs")
        await page.get_by_label("Id, or a filter").fill("platform=twitter retry_count<=3")
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


async def test_taking_one_filter_away_leaves_the_others(world: World, new_page: NewPage) -> None:
    async with new_page() as page:
        full = f"{world.url}/console/records/pending_jobs?status=pending&platform=twitter&attempts__gte=0&q=9f"
        await page.goto(full)
        await page.locator(".chips li").filter(has_text="platform").get_by_role("link").click()
        assert page.url.endswith("?status=pending&attempts__gte=0&q=9f")
        await page.goto(full)
        await page.locator(".chips li").filter(has_text="begins with").get_by_role("link").click()
        assert page.url.endswith("?status=pending&platform=twitter&attempts__gte=0")


async def test_a_quoted_value_is_taken_as_it_is(own_world: World, new_page: NewPage) -> None:
    await own_world.runtime.engine.records.insert(
        [Picture(title=title) for title in ("red, green", "red", "null")]
    )
    async with new_page() as page:
        for said in ("red, green", "null"):
            await page.goto(f"{own_world.url}/console/records/pictures")
            await page.get_by_label("Id, or a filter").fill(f'title="{said}"')
            await page.get_by_role("button", name="Find").click()
            assert await page.locator("tbody tr").count() == 1
            assert said in await page.locator("tbody tr").inner_text()


async def test_a_click_beside_everything_does_not_stop_the_page(
    own_world: World, new_page: NewPage
) -> None:
    async with new_page() as page:
        await page.clock.install()
        await page.goto(f"{own_world.url}/console/cycles")
        await page.locator("h1").click()
        await own_world.runtime.operations("tests").pause("tenders.ingest", "while somebody looks")
        async with page.expect_response("**/console/cycles"):
            await page.clock.run_for(6000)
        await page.locator(".cycle.paused").wait_for()
        await page.locator("summary").first.click()  # somebody is at work
        await own_world.runtime.operations("tests").resume("tenders.ingest", "")
        await page.clock.run_for(12_000)
        assert await page.locator(".cycle.paused").count() == 1


async def test_the_map_lives_again_when_the_browser_goes_back_to_it(
    own_world: World, new_page: NewPage
) -> None:
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
        await page.get_by_role("link", name="Open the trace view").click()
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
        assert await page.locator("[data-zoom-at]").inner_text() == "125 %"
        await page.get_by_role("button", name="Fit").click()
        assert await page.locator("[data-zoom-at]").inner_text() == "100 %"
        await page.get_by_label("Find a value").fill("plusvalía")
        assert await page.locator("[data-value]:visible").count() == 2
        await page.locator(".sheet-view").focus()
        await page.keyboard.press("ArrowRight")
        await page.wait_for_url("**page=1**")
        assert await page.locator(".boxes rect").count() == 1


async def test_an_empty_house_teaches(new_page: NewPage, tmp_path: Path) -> None:
    async with served(tmp_path, empty=True, apps="media") as world, new_page() as page:
        for path, word in {
            "/": "esclusa worker", "/console/dead-letters": "No dead letters", "/console/budgets": "Window('day', 400)",
            "/console/runs": "esclusa run media.download", "/console/alerts": "ESCLUSA_ALERT_WEBHOOK",
            "/console/audit": "Nobody has acted yet",
            "/console/records/pictures": "/api/records/pictures", "/console/archive": "archive=True", "/console/workers": "esclusa worker",
        }.items():  # fmt: skip
            await page.goto(world.url + path)
            assert word in await page.locator("main").inner_text(), path


async def test_views_of_a_pipeline(world: World, new_page: NewPage) -> None:
    """On the map with their numbers, as pages, each row leading to its record; in the visitor's language."""
    async with new_page(locale="es-CL") as page:
        await page.goto(world.url)
        link = page.locator(".views-line a", has_text="errors")
        told = int(await link.locator("b").inner_text())
        await link.click()
        assert "Imágenes que no se pudieron obtener" in await page.locator(".lead").inner_text()
        assert await page.locator("tbody tr").count() == told
        roomy = await page.locator("tbody td.text").evaluate_all(
            "cells => cells.map(cell => cell.textContent.length)"
        )
        assert min(roomy, default=99) > 20, (
            "a column of short words takes no room from the long ones, and none is out of sight"
        )
        await page.locator("tbody th a").first.click()
        assert "error" in await page.locator("main").inner_text()
        await page.goto(f"{world.url}/console/views/media.summary")
        assert "success" in await page.locator("tbody").inner_text()


async def test_health_tells_what_is_wrong_and_where_it_hurts(
    world: World, new_page: NewPage
) -> None:
    async with new_page() as page:
        await page.goto(f"{world.url}/console/health")
        checks = page.locator("table").first
        assert "up to date" in await checks.locator("tr", has_text="schema").inner_text()
        late = page.locator("table").last.locator("tr", has_text="pictures")
        assert "h" in (await late.locator("td").nth(4).inner_text()), (
            "the oldest due record of the world is late by more than an hour"
        )
