"""Every action of the console, from the form to the audit log."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.async_api import Route
from web.console.browser import pages
from web.console.conftest import NewPage
from web.console.world import Job, Post, World, served

from esclusa.model.query import Query
from esclusa.model.system_records import Audit, DeadLetter

# The browser, the server and the tests share one event loop.
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def last_action(world: World) -> Audit:
    found = await world.runtime.engine.records.first(Audit, order="-done_at")
    assert found is not None
    return found


async def test_bulk_retry_with_preview_and_reason(own_world: World, new_page: NewPage) -> None:
    async with new_page() as page:
        await page.goto(f"{own_world.url}/console/records/pending_jobs?status=failed")
        many = await page.locator("tbody tr").count()
        assert many > 3
        await page.get_by_role("button", name="Retry…").click()
        assert f"Retry {many} records?" in await page.locator("h1").inner_text()
        assert await own_world.runtime.engine.records.count(Job, {"status": "failed"}) == (
            many,
            True,
        )
        await page.get_by_role("button", name="Retry").click()  # the browser requires a reason
        assert "act?" in page.url
        await page.get_by_label("Reason").fill("the account is public again")
        await page.get_by_role("button", name="Retry").click()
        assert f"{many} records moved." in await page.locator(".flash").inner_text()
        audit = await last_action(own_world)
        assert (audit.verb, audit.subject, audit.affected, audit.reason, audit.who) == (
            "retry",
            "pending_jobs",
            many,
            "the account is public again",
            "console",
        )
        await page.goto(f"{own_world.url}/console/audit")
        assert "the account is public again" in await page.locator("tbody tr").first.inner_text()


async def test_records_in_an_undeclared_state_are_repaired(
    own_world: World, new_page: NewPage
) -> None:
    import apsw

    engine = own_world.runtime.engine
    job = await engine.records.first(Job, {"status": "failed"})
    assert job is not None
    database = apsw.Connection(own_world.runtime.store.url.removeprefix("sqlite:///"))
    database.execute("UPDATE pending_jobs SET status = 'on hold' WHERE id = ?", (job.id,))
    database.close()
    async with new_page() as page:
        await page.goto(f"{own_world.url}/console/records/pending_jobs/{quote(job.id)}")
        assert "'on hold' is not a state of pending_jobs" in await page.locator(".why").inner_text()
        await page.get_by_role("link", name="Repair…").click()
        assert await page.locator("tbody tr").count() == 1
        await page.get_by_label("State to move to").select_option("failed")
        await page.get_by_role("button", name="Repair…").click()
        assert "Move 1 record to failed?" in await page.locator("h1").inner_text()
        await page.get_by_label("Reason").fill("the hold is over")
        await page.get_by_role("button", name="Move").click()
        assert "1 record moved." in await page.locator(".flash").inner_text()
    audit = await last_action(own_world)
    assert (audit.verb, audit.affected, audit.reason) == ("repair", 1, "the hold is over")
    moved = await engine.records.get(Job, job.id)
    assert moved is not None
    assert moved.status == "failed"


async def test_bulk_move_of_selected_records_only(own_world: World, new_page: NewPage) -> None:
    async with new_page() as page:
        await page.goto(f"{own_world.url}/console/records/pending_jobs?status=empty_result")
        await page.locator("input[name=ids]").nth(0).check()
        await page.locator("input[name=ids]").nth(2).check()
        assert await page.locator("[data-selected]").inner_text() == "2 selected"
        await page.get_by_label("State to move to").select_option("verified")
        await page.get_by_role("button", name="Move…").click()
        assert await page.locator("h1").inner_text() == "Move 2 records to verified?"
        await page.get_by_label("Reason").fill("checked by hand")
        await page.get_by_role("button", name="Move").click()
        assert "2 records moved." in await page.locator(".flash").inner_text()


async def test_an_undeclared_bulk_move_is_refused(own_world: World, new_page: NewPage) -> None:
    async with new_page() as page:
        answer = await page.goto(
            f"{own_world.url}/console/records/pending_jobs/act?verb=move&to=verified"
        )
        assert answer is not None
        assert answer.status == 409
        assert "Move not declared" in await page.locator("h1").inner_text()


async def test_more_matches_than_previewed_are_previewed_again(
    own_world: World, new_page: NewPage
) -> None:
    async with new_page() as page:
        await page.goto(
            f"{own_world.url}/console/records/pending_jobs/act?verb=retry&status=failed"
        )
        await page.locator("input[name=matched]").evaluate("field => { field.value = '1' }")
        await page.get_by_label("Reason").fill("again")
        await page.get_by_role("button", name="Retry").click()
        assert "Check the list again" in await page.locator("[role=status]").inner_text()


async def test_more_dead_letters_than_previewed_are_previewed_again(
    own_world: World, new_page: NewPage
) -> None:
    async with new_page() as page:
        await page.goto(
            f"{own_world.url}/console/dead-letters/act?verb=discard&table=pictures&error=invalid_media"
        )
        before = await own_world.runtime.read_model.dead_letters({"status": "open"}, limit=100)
        more = DeadLetter(
            table_name="pictures",
            record_id="p",
            state_before="pending",
            error_type="invalid_media",
            error_message="m",
        )
        await own_world.runtime.store.insert([more])
        await page.get_by_label("Reason").fill("gone")
        await page.get_by_role("button", name="Discard").click()
        assert "Check the list again" in await page.locator("[role=status]").inner_text()
        after = await own_world.runtime.read_model.dead_letters({"status": "open"}, limit=100)
        assert len(after.items) == len(before.items) + 1
        await page.get_by_label("Reason").fill("gone")
        await page.get_by_role("button", name="Discard").click()
        assert "discarded" in await page.locator(".flash").inner_text()


async def test_switching_the_language_after_a_form_keeps_its_values(
    own_world: World, new_page: NewPage
) -> None:
    """The switch leads back to the preview, with the selection and the reason."""
    more = DeadLetter(
        table_name="pictures",
        record_id="p",
        state_before="pending",
        error_type="invalid_media",
        error_message="m",
    )
    for path, chosen in (
        ("dead-letters/act?verb=discard&table=pictures&error=invalid_media", "pictures"),
        ("records/pending_jobs/act?verb=retry&status=failed&platform=twitter", "twitter"),
    ):
        async with new_page() as page:
            await page.goto(f"{own_world.url}/console/{path}")
            await own_world.runtime.store.insert([more])
            await page.locator("input[name=matched]").evaluate("field => { field.value = '0' }")
            await page.get_by_label("Reason").fill("gone & forgotten")
            async with page.expect_response(
                lambda answer: answer.request.method == "POST"
            ) as answered:
                await page.locator("form.confirm .acts button").click()
            assert (await answered.value).status == 409
            assert await page.get_by_label("Reason").input_value() == "gone & forgotten"
            await page.get_by_role("button", name="Español").click()
            assert await page.title() == "Vista previa · Esclusa"
            assert chosen in await page.locator(".chips").inner_text()
            assert await page.get_by_label("Motivo").input_value() == "gone & forgotten"
            await page.locator("form.confirm .acts button").click()
            await page.locator(".flash.good").wait_for()
            await page.get_by_role("button", name="English").click()
            assert await page.locator(".error-page").count() == 0


async def test_a_refused_form_leads_back_to_its_page(own_world: World, new_page: NewPage) -> None:
    job = (
        await own_world.runtime.read_model.records("pending_jobs", {"status": "failed"}, limit=1)
    ).items[0]
    address = f"{own_world.url}/console/records/pending_jobs/{job.id}"
    async with new_page() as page:
        for leave in ("button:text-is('ES')", "a:text-is('Back to the form')"):
            await page.goto(address)
            await page.locator("#reason-retry").fill(" ")
            await page.get_by_role("button", name="Retry").click()
            assert "Enter a reason" in await page.locator(".error-page").inner_text()
            await page.locator(leave).click()
            assert page.url == address
            assert await page.locator("h1.id").inner_text() == job.id
            await page.get_by_role("button", name="English").click()


async def test_a_confirmed_bulk_action_counts_only_once(
    own_world: World, new_page: NewPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, counted = own_world.runtime.store, []

    async def count(query: Query, *cap: int) -> tuple[int, bool]:
        counted.append(query.kind.table)
        return await type(store).count(store, query, *cap)

    async with new_page() as page:
        for path in (
            "dead-letters/act?verb=redrive&error=forbidden",
            "records/pictures/act?verb=retry&status=error",
        ):
            await page.goto(f"{own_world.url}/console/{path}")
            fields = page.locator("form.confirm input[type=hidden]")
            form = dict(await fields.evaluate_all("all => all.map(e => [e.name, e.value])")) | {
                "reason": "x"
            }
            with monkeypatch.context() as watched:
                watched.setattr(store, "count", count, raising=False)
                answer = await page.request.post(
                    f"{own_world.url}/console/{path.partition('?')[0]}", form=form, max_redirects=0
                )
            assert answer.status == 303
    assert counted == ["esclusa_dead_letters", "pictures"]


async def test_a_second_click_does_not_send_the_form_again(
    own_world: World, new_page: NewPage
) -> None:
    posts: list[str] = []

    async def slowly(route: Route) -> None:
        posts.append(route.request.url)
        await asyncio.sleep(0.4)
        await route.continue_()

    async with new_page() as page:
        await page.goto(
            f"{own_world.url}/console/records/pending_jobs/act?verb=retry&status=failed"
        )
        await page.get_by_label("Reason").fill("again")
        await page.route("**/act", slowly)
        box = await page.get_by_role("button", name="Retry").bounding_box()
        assert box is not None
        for _ in range(2):
            await page.mouse.click(box["x"] + 9, box["y"] + 9)
            await asyncio.sleep(0.1)
        await page.wait_for_url("**/console/records/pending_jobs?status=failed")
        assert "records moved." in await page.locator(".flash").inner_text()
        assert len(posts) == 1


async def test_values_that_no_store_accepts_are_refused(
    own_world: World, new_page: NewPage
) -> None:
    job = (
        await own_world.runtime.read_model.records("pending_jobs", {"status": "failed"}, limit=1)
    ).items[0]
    address = f"{own_world.url}/console/records/pending_jobs/{job.id}"
    async with new_page() as page:
        await page.goto(address)
        token = await page.locator("input[name=form_token]").first.get_attribute("value") or ""
        form = {"form_token": token, "verb": "move", "to": "pending", "reason": "x"}
        for status, odd in (
            (422, {"field.retry_count": "9" * 30}),
            (422, {"field.options": "[" * 100_000}),
            (422, {"field.options": '{"a": ' + "[" * 300 + "]" * 300 + "}"}),
            (422, {"field.options": '{"a": "\\u0000"}'}),
            (400, {"field.platform": "x\0y"}),
            (400, {"reason": "x\0y"}),
        ):
            assert (await page.request.post(address, form=form | odd)).status == status, odd
        limits = {"form_token": token, "per": "day", "limit": "²", "reason": "x"}
        assert (
            await page.request.post(
                f"{own_world.url}/console/budgets/information-tracer", form=limits
            )
        ).status == 422
    assert (await own_world.runtime.read_model.record("pending_jobs", job.id)).status == "failed"


async def test_redrive_after_editing(own_world: World, new_page: NewPage) -> None:
    async with new_page() as page:
        await page.goto(f"{own_world.url}/console/dead-letters")
        group = page.locator(".group").filter(has_text="invalid_media")
        await group.get_by_role("link", name="View").click()
        outdated = (
            (
                await own_world.runtime.read_model.records(
                    "pictures", {"title": "Publicación 0"}, limit=1
                )
            )
            .items[0]
            .id
        )
        await page.locator("tbody th a").filter(has_not_text=outdated).first.click()
        await page.get_by_label("imagen_url").fill("https://cdn.example.org/fixed.jpg")
        await page.locator("#reason-redrive").fill("the link was wrong")
        await page.get_by_role("button", name="Retry").click()
        await page.wait_for_url("**/console/records/pictures/**")
        assert "1 dead letter retried." in await page.locator(".flash").inner_text()
        assert (
            "https://cdn.example.org/fixed.jpg" in await page.locator(".fields").first.inner_text()
        )
        assert "the link was wrong" in await page.locator(".timeline").inner_text()


async def test_an_invalid_edit_is_refused(own_world: World, new_page: NewPage) -> None:
    letter = (
        await own_world.runtime.read_model.dead_letters(
            {"status": "open", "table_name": "pending_jobs"}, limit=1
        )
    ).items[0]
    async with new_page() as page:
        await page.goto(f"{own_world.url}/console/dead-letters/{letter.id}")
        await page.get_by_label("retry_count").fill("many")
        await page.locator("#reason-redrive").fill("x")
        await page.get_by_role("button", name="Retry").click()
        assert "retry_count" in await page.locator(".error-page").inner_text()
        await page.go_back()
        await page.get_by_label("options").fill("{no json")
        await page.locator("#reason-redrive").fill("x")
        await page.get_by_role("button", name="Retry").click()
        assert "options is not JSON" in await page.locator(".error-page").inner_text()
    assert (
        await own_world.runtime.read_model.record("esclusa_dead_letters", letter.id)
    ).status == "open"


async def test_discard_and_redrive_a_group(own_world: World, new_page: NewPage) -> None:
    async with new_page() as page:
        await page.goto(f"{own_world.url}/console/dead-letters")
        await (
            page.locator(".group")
            .filter(has_text="forbidden")
            .get_by_role("link", name="Retry…")
            .click()
        )
        await page.get_by_label("Reason").fill("permission was given")
        await page.get_by_role("button", name="Retry").click()
        assert "retried" in await page.locator(".flash").inner_text()
        await (
            page.locator(".group")
            .filter(has_text="invalid_media")
            .get_by_role("link", name="Discard…")
            .click()
        )
        await page.get_by_label("Reason").fill("gone for good")
        await page.get_by_role("button", name="Discard").click()
        assert "discarded" in await page.locator(".flash").inner_text()
        assert await page.locator(".group").count() == 0


async def test_edit_and_move_one_record(own_world: World, new_page: NewPage) -> None:
    async with new_page() as page:
        waiting = (
            await own_world.runtime.read_model.records("posts", {"status": "noreplies"}, limit=1)
        ).items[0]
        await page.goto(f"{own_world.url}/console/records/posts/{waiting.id}")
        offered = await page.locator("select[name=to] option").all_inner_texts()
        assert offered == ["processing", "done", "skipped"]
        await page.get_by_label("country").fill("UY")
        await page.locator("select[name=to]").select_option("skipped")
        await page.locator("#reason-move").fill("no replies are expected")
        await page.get_by_role("button", name="Move", exact=True).click()
        assert "The record was moved." in await page.locator(".flash").inner_text()
        assert "UY" in await page.locator(".fields").first.inner_text()


async def test_pause_resume_run_a_cycle(own_world: World, new_page: NewPage) -> None:
    async with new_page() as page:
        await page.goto(f"{own_world.url}/console/cycles")
        card = page.locator(".cycle").filter(has_text="media.download")
        await card.get_by_text("Pause…").click()
        await card.get_by_label("Reason").fill("the CDN is down")
        await card.get_by_role("button", name="Pause", exact=True).click()
        assert "media.download is paused" in await page.locator(".flash").inner_text()
        assert "when resumed" in await card.inner_text()
        assert own_world.runtime.engine.paused("media.download")
        pending = (
            await own_world.runtime.read_model.records("pictures", {"status": "pending"}, limit=1)
        ).items[0]
        await page.goto(f"{own_world.url}/console/records/pictures/{pending.id}")
        why = await page.locator(".why").inner_text()
        assert "was paused by" in why
        assert "the CDN is down" in why
        await page.goto(f"{own_world.url}/console/cycles")
        await card.get_by_role("button", name="Resume").click()
        assert "is resumed" in await page.locator(".flash").inner_text()
        await (
            page.locator(".cycle")
            .filter(has_text="tenders.ingest")
            .get_by_role("button", name="Run now")
            .click()
        )
        assert "tenders.ingest: ok (new 3)" in await page.locator(".flash").inner_text()


async def test_change_a_limit(own_world: World, new_page: NewPage) -> None:
    async with new_page() as page:
        await page.goto(f"{own_world.url}/console/budgets")
        card = page.locator(".budget").filter(has_text="information-tracer")
        assert "replies.process-posts" in await card.inner_text()
        await card.get_by_text("Change limit…").click()
        await card.get_by_label("Limit until the reset").fill("900")
        await card.get_by_label("Reason").fill("the provider raised it")
        await card.get_by_role("button", name="Change", exact=True).click()
        assert (
            "of 900 used"
            in await page.locator(".budget").filter(has_text="information-tracer").inner_text()
        )


async def test_alerts_are_marked_as_read(own_world: World, new_page: NewPage) -> None:
    async with new_page() as page:
        await page.goto(f"{own_world.url}/console/alerts")
        await page.get_by_role("button", name="Mark all as read").click()
        assert "2 alerts marked as read." in await page.locator(".flash").inner_text()
        assert await page.locator(".menu .badge.warn").count() == 0


async def test_a_rule_is_changed_reset_and_muted(own_world: World, new_page: NewPage) -> None:
    async with new_page() as page:
        await page.goto(f"{own_world.url}/console/alerts")
        await page.get_by_role("link", name="Rules", exact=True).click()
        card = page.locator(".rule").filter(has=page.locator("#rule-backlog"))
        row = card.locator(".rule-row")
        assert "ESCLUSA_ALERT_BACKLOG_SECONDS" in await row.inner_text()
        await row.get_by_text("Change…").click()
        await row.get_by_label("Threshold").fill("soon")
        await row.get_by_label("Reason").fill("a slow week")
        await row.get_by_role("button", name="Change", exact=True).click()
        assert "write 2h, 20%" in await page.locator("main").inner_text()
        await page.goto(f"{own_world.url}/console/alert-rules")
        await row.get_by_text("Change…").click()
        await row.get_by_label("Threshold").fill("2h")
        await row.get_by_label("Reason").fill("a slow week")
        await row.get_by_role("button", name="Change", exact=True).click()
        assert "Workers follow within seconds" in await page.locator(".flash").inner_text()
        assert "2h" in await row.locator(".threshold").inner_text()
        assert "a slow week" in await row.inner_text()
        await row.get_by_text("Mute…").click()
        await row.get_by_label("Note").fill("the provider works on it")
        await row.get_by_role("button", name="Mute", exact=True).click()
        assert "the provider works on it" in await page.locator(".mutes").inner_text()
        await page.get_by_role("button", name="Unmute").click()
        assert await page.locator(".mutes").count() == 0
        await row.get_by_role("button", name="Reset").click()
        assert "1h" in await row.locator(".threshold").inner_text()


async def test_an_alert_is_muted_where_it_is_listed(own_world: World, new_page: NewPage) -> None:
    async with new_page(java_script_enabled=False) as page:
        await page.goto(f"{own_world.url}/console/alerts")
        text = (await page.locator(".alert-list li").first.inner_text()).splitlines()[0]
        # Others may begin meanwhile and come before it.
        first = page.locator(".alert-list li").filter(has_text=text)
        await first.locator("summary", has_text="Mute…").click()
        await first.get_by_label("Note").fill("known")
        await first.get_by_role("button", name="Mute", exact=True).click()
        assert "muted until" in await first.inner_text()
        assert "known" in await first.inner_text()


async def test_an_action_of_a_pipeline_on_a_list(own_world: World, new_page: NewPage) -> None:
    """From the list with its filter: preview, parameter, reason, audit; also without a script."""
    async with new_page(java_script_enabled=False) as page:
        await page.goto(f"{own_world.url}/console/records/pictures?status=error")
        await page.get_by_role("button", name="Retry pictures…").click()
        assert "Retry pictures: " in await page.locator("h1").inner_text()
        assert "will be changed" in await page.locator("main").inner_text()
        await page.get_by_label("Only errors of this type").select_option("invalid_media")
        await page.get_by_label("Reason").fill("the pages are pictures now")
        await page.get_by_role("button", name="Retry pictures").click()
        assert "moved." in await page.locator(".flash").inner_text()
        await page.goto(f"{own_world.url}/console/audit")
        audit = await page.locator("main").inner_text()
        assert "retry-pictures" in audit
        assert "the pages are pictures now" in audit


async def test_an_action_of_a_pipeline_on_a_record(own_world: World, new_page: NewPage) -> None:
    failed = await own_world.runtime.read_model.records("pictures", {"status": "error"}, limit=1)
    id = failed.items[0].id
    async with new_page() as page:
        await page.goto(f"{own_world.url}/console/records/pictures/{id}")
        await page.get_by_role("link", name="Retry pictures…").click()
        assert await page.locator("h1").inner_text() == "Retry pictures: 1 record"
        await page.get_by_label("Reason").fill("again")
        await page.get_by_role("button", name="Retry pictures").click()
        assert "1 record moved." in await page.locator(".flash").inner_text()
        assert page.url.endswith(f"/console/records/pictures/{id}")
        assert await page.get_by_role("link", name="Retry pictures…").count() == 0
        await page.get_by_role("link", name="Actions", exact=True).click()
        await page.get_by_role("link", name="Register a baseline…").click()
        await page.get_by_label("Reason").fill("before the first ingest")
        await page.get_by_role("button", name="Register a baseline").click()
        assert "registered by" in await page.locator(".flash").inner_text()


async def test_shortcuts_of_the_keyboard(own_world: World, new_page: NewPage) -> None:
    async with new_page() as page:
        await page.goto(f"{own_world.url}/console/health")
        await page.keyboard.press("?")
        dialog = page.get_by_role("dialog", name="Keyboard")
        assert "Next row" in await dialog.inner_text()
        await page.keyboard.press("Escape")
        assert not await dialog.is_visible()
        await page.keyboard.press("g")
        await page.keyboard.press("r")
        await page.wait_for_url("**/console/records")
        await page.goto(f"{own_world.url}/console/records/pictures?status=error")
        for key in "jjk":
            await page.keyboard.press(key)
        await page.keyboard.press("x")
        rows = page.locator("table.rows tbody tr")
        assert await rows.first.get_by_role("checkbox").is_checked()
        assert await rows.nth(1).get_by_role("checkbox").is_checked() is False
        await page.keyboard.press("/")
        await page.keyboard.type("gm?")  # typed, not obeyed
        assert await page.get_by_role("searchbox").input_value() == "gm?"
        await page.keyboard.press("Escape")
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/console/records/pictures/*")


TOKENS = "maria=let-me-operate:operate,eva=let-me-look:read"


async def test_sign_in_roles_and_sign_out(new_page: NewPage, tmp_path: Path) -> None:
    async with served(tmp_path, tokens=TOKENS) as world:
        async with new_page() as page:
            await page.goto(f"{world.url}/console/budgets")
            await page.wait_for_url("**/console/sign-in?next=**")
            await page.get_by_label("Token").fill("wrong")
            await page.get_by_role("button", name="Sign in").click()
            assert "Invalid token" in await page.get_by_role("alert").inner_text()
            await page.get_by_label("Token").fill("let-me-look")
            await page.get_by_role("button", name="Sign in").click()
            await page.wait_for_url("**/console/budgets")
            assert await page.get_by_text("Change limit…").count() == 0
            await page.goto(f"{world.url}/console/dead-letters")
            assert await page.get_by_role("link", name="Retry…").count() == 0
            cookie = next(c for c in await page.context.cookies() if c["name"] == "esclusa_session")
            assert cookie["httpOnly"]
            assert cookie["sameSite"] == "Lax"
            refused = await page.request.post(
                f"{world.url}/console/cycles/media.download/run", form={"form_token": "x"}
            )
            assert refused.status == 403
            assert (await page.request.get(f"{world.url}/api/kinds")).status == 200
            assert (
                await page.request.post(f"{world.url}/api/cycles/media.download/run")
            ).status == 401  # a session alone may not act through the API
            await page.get_by_role("button", name="Sign out").click()
            await page.wait_for_url("**/console/sign-in")
            await page.goto(world.url)
            await page.wait_for_url("**/console/sign-in?next=**")
        async with new_page() as page:
            await page.goto(f"{world.url}/console/sign-in?next=//evil.example.org/")
            await page.get_by_label("Token").fill("let-me-operate")
            await page.get_by_role("button", name="Sign in").click()
            await page.wait_for_url(f"{world.url}/")
            await page.goto(f"{world.url}/console/cycles")
            await (
                page.locator(".cycle")
                .filter(has_text="tenders.ingest")
                .get_by_role("button", name="Run now")
                .click()
            )
            assert "ok" in await page.locator(".flash").inner_text()
            assert (await last_action(world)).who == "console:maria"


async def test_a_forged_form_is_refused(own_world: World, new_page: NewPage) -> None:
    async with new_page() as page:
        await page.goto(own_world.url)
        for form in ({}, {"form_token": "forged", "reason": "x"}):
            answer = await page.request.post(
                f"{own_world.url}/console/cycles/media.download/pause", form=form
            )
            assert answer.status == 403
            assert "has expired" in await answer.text()
        assert not own_world.runtime.engine.paused("media.download")


async def test_guessing_tokens_is_throttled(new_page: NewPage, tmp_path: Path) -> None:
    async with served(tmp_path, tokens=TOKENS, empty=True) as world, new_page() as page:
        statuses = [
            (
                await page.request.post(
                    f"{world.url}/console/sign-in", form={"token": f"guess {n}"}
                )
            ).status
            for n in range(24)
        ]
        assert statuses[:20] == [401] * 20
        assert 429 in statuses[20:]


async def test_wrong_guesses_do_not_lock_out_a_known_token(
    new_page: NewPage, tmp_path: Path
) -> None:
    async with served(tmp_path, tokens=TOKENS, empty=True) as world, new_page() as page:
        sign_in = f"{world.url}/console/sign-in"
        assert (await page.request.post(sign_in, form={"token": "let-me-operate"})).status == 200
        for n in range(24):
            await page.request.post(sign_in, form={"token": f"guess {n}"})
        assert (
            await page.request.post(sign_in, form={"token": "let-me-look"})
        ).status == 429  # not yet accepted from this address
        assert (await page.request.post(sign_in, form={"token": "let-me-operate"})).status == 200


async def test_a_read_only_token_is_refused_in_the_language_of_the_page(
    new_page: NewPage, tmp_path: Path
) -> None:
    async with served(tmp_path, tokens=TOKENS, empty=True) as world, new_page() as page:
        await page.request.post(f"{world.url}/console/sign-in", form={"token": "let-me-look"})
        run = f"{world.url}/console/cycles/media.download/run"
        refused = await page.request.post(
            run, form={"form_token": "x"}, headers={"Accept-Language": "es-CL"}
        )
        assert refused.status == 403
        assert "Acceso de solo lectura" in await refused.text()


async def test_behind_a_proxy_on_a_sub_path(new_page: NewPage, tmp_path: Path) -> None:
    async with served(tmp_path, root_path="/lock", tokens=TOKENS) as world, new_page() as page:
        await page.goto(f"{world.url}/lock/console/cycles")
        await page.wait_for_url("**/lock/console/sign-in?next=%2Fconsole%2Fcycles")
        await page.get_by_label("Token").fill("let-me-operate")
        await page.get_by_role("button", name="Sign in").click()
        await page.wait_for_url("**/lock/console/cycles")
        for link in await page.locator("a[href]").all():
            assert (await link.get_attribute("href") or "").startswith(("/lock/", "#"))
        await (
            page.locator(".cycle")
            .filter(has_text="tenders.ingest")
            .get_by_role("button", name="Run now")
            .click()
        )
        await page.wait_for_url("**/lock/console/cycles")
        await page.goto(f"{world.url}/lock/")
        await page.locator("[data-live].on").wait_for()


async def test_every_link_is_below_the_sub_path(new_page: NewPage, tmp_path: Path) -> None:
    async with served(tmp_path, root_path="/lock") as world, new_page() as page:
        wrong: list[str] = []
        page.on(
            "response",
            lambda answer: wrong.append(answer.url) if "/lock/" not in answer.url else None,
        )
        for name, path in (await pages(world)).items():
            await page.goto(f"{world.url}/lock{path}")
            found = await page.evaluate(
                "[...document.querySelectorAll('[href], [action], [src], [data-live]')]"
                ".flatMap(e => ['href', 'action', 'src', 'data-live'].map(n => e.getAttribute(n)))"
                ".filter(Boolean)"
            )
            wrong += [
                f"{name}: {address}"
                for address in found
                if not address.startswith(("/lock/", "#", "https://"))
            ]
        assert not wrong


ODD = ["x/act", "50%/25", "%2F", "a b?c#d&e", "ñandú", ".."]


async def test_records_with_odd_ids(new_page: NewPage, tmp_path: Path) -> None:
    """An id may contain any character: its page opens, and its forms return to it."""
    async with served(tmp_path, tokens=TOKENS, empty=True) as world, new_page() as page:
        await world.runtime.engine.records.insert(
            [Post(platform="odd", post_id=id, status="done") for id in ODD]
        )
        for id in (Post.kind.id_of("odd", odd) for odd in ODD):
            await page.context.clear_cookies()
            address = f"{world.url}/console/records/posts/{quote(id, safe='')}"
            await page.goto(address)
            await page.get_by_label("Token").fill("let-me-operate")
            await page.get_by_role("button", name="Sign in").click()
            await page.wait_for_url(address)
            assert await page.locator("h1.id").inner_text() == id
            await page.get_by_role("button", name="Dark").click()
            await page.wait_for_url(address)
            await page.get_by_label("Reason").last.fill("odd")
            await page.get_by_role("button", name="Move").last.click()
            assert await page.locator("h1.id").inner_text() == id
            assert "moved" in await page.locator(".flash").inner_text()
        await page.goto(f"{world.url}/console/search?q=odd:")
        assert await page.locator(".hits li").count() == 5  # of six
