"""Screenshots of every page of the console, light and dark.

``python -m tests.web.screens`` writes them to docs/screens.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from PIL import Image
from playwright.async_api import async_playwright
from web.console.browser import CHROMIUM, pages, ready
from web.console.world import served

TARGET = Path(__file__).parents[2] / "docs" / "screens"


async def main(target: Path = TARGET, only: str = "") -> None:
    """Take the pictures whose names contain ``only``, light and dark, some on a Spanish phone."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        async with served(Path(folder)) as world, async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=CHROMIUM, args=["--no-sandbox"]
            )
            for theme in ("light", "dark"):
                context = await browser.new_context(
                    viewport={"width": 1360, "height": 850}, color_scheme=theme, locale="en-GB"
                )
                page = await context.new_page()
                for name, path in (await pages(world)).items():
                    if only and only not in name:
                        continue
                    await page.goto(world.url + path)
                    await ready(page)
                    await page.screenshot(path=target / f"{name}-{theme}.png", full_page=True)
                await context.close()
            for name, path in (await pages(world)).items():
                if name in ("map", "record", "records") and (not only or only in name):
                    context = await browser.new_context(
                        viewport={"width": 390, "height": 844}, color_scheme="light", locale="es-CL"
                    )
                    page = await context.new_page()
                    await page.goto(world.url + path)
                    await ready(page)
                    await page.screenshot(path=target / f"{name}-phone-es.png", full_page=False)
                    await context.close()
            await browser.close()
    for file in target.glob(f"*{only}*.png"):
        with Image.open(file) as picture:
            flat = (
                picture.convert("RGB")
                .crop((0, 0, picture.width, min(picture.height, 1900)))
                .quantize(144)
            )
        flat.save(file, optimize=True)


if __name__ == "__main__":
    asyncio.run(
        main(
            Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET,
            sys.argv[2] if len(sys.argv) > 2 else "",
        )
    )
