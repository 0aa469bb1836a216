"""Review and correction in the trace view, in a real browser."""

from __future__ import annotations

import os
from pathlib import Path

import axe_playwright_python
import pytest
from pipelines.documents.conftest import NewService
from pipelines.documents.test_review import balance
from playwright.async_api import async_playwright
from web.console.browser import CHROMIUM

from esclusa.pipelines.documents.records import Documento, Extraccion

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()


@pytest.mark.parametrize("provider", ["sqlite"], indirect=True)
async def test_a_value_is_corrected_with_the_keyboard(new_service: NewService) -> None:
    service = await new_service(local=True, serve=True, DOCUMENTS_LOCAL_PROCESSES=1)
    service.put("a/bad.pdf", balance(total="2.100.900"))
    await service.process("gs://bkt/a")
    doc = (await service.docs())[0]
    wrong = next(e for e in await service.extractions(documento_id=doc.id) if e.value == "2100900")
    address = f"{service.url}/console/documents/{doc.folio_id}/{doc.id}"
    async with async_playwright() as play:
        browser = await play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = await browser.new_page(viewport={"width": 1400, "height": 900}, locale="es-CL")
        await page.goto(address)
        assert await page.get_by_role("heading", name="Requiere revisión").is_visible()
        await page.evaluate(AXE)
        results = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        serious = [v for v in results["violations"] if v["impact"] in ("serious", "critical")]
        assert serious == []
        if folder := os.environ.get("SCREENS"):
            await page.screenshot(path=Path(folder) / "review-es.png")
        chosen = page.locator("li.on [data-value]")
        for _ in range(40):
            await page.keyboard.press("ArrowDown")
            if await chosen.get_attribute("data-value") == wrong.id:
                break
        await page.keyboard.press("e")
        await page.keyboard.type("2.100.600")
        await page.keyboard.press("Tab")
        await page.keyboard.type("un 9 leído por un 6")
        if folder:
            await page.screenshot(path=Path(folder) / "correct-es.png")
        await page.keyboard.press("Enter")
        await page.get_by_text("El valor está corregido.").wait_for()
        assert await page.get_by_role("heading", name="Requiere revisión").count() == 0
        if folder:
            await page.screenshot(path=Path(folder) / "corrected-es.png")
        await browser.close()
    kept = await service.runtime.records.get(Extraccion, wrong.id)
    assert kept is not None
    assert (kept.value, kept.corrected_value, kept.review_reason) == (
        "2100900",
        "2100600",
        "un 9 leído por un 6",
    )
    after = await service.runtime.records.get(Documento, doc.id)
    assert after is not None
    assert not after.needs_review
