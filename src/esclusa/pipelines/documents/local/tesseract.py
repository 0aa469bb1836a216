"""Words of a picture, read by the program ``tesseract``.

The program is called once per page: its own start is a small part of the time it needs to read one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from typing import Any

import pypdfium2 as pdfium

from esclusa.pipelines.documents.local.dark_bands import without_dark_bands
from esclusa.pipelines.documents.local.page_geometry import PageGeometry
from esclusa.pipelines.documents.local.picture_words import Picture, words_of_picture
from esclusa.pipelines.documents.local.word_lines import PictureWord
from esclusa.pipelines.documents.local.words import Recogniser, Word

PROGRAM = "tesseract"
# Pixels per inch: scans of 200 dpi are not enlarged much, finer ones are made smaller.
DPI = 220
# The most pixels of a page.
MAX_PIXELS = 16_000_000
SECONDS_PER_PAGE = 120
# Sparse text, in no order: words in columns stay apart, and the rules find the rows.
_SPARSE = "11"
# Below this mean confidence, or with fewer words, the page may lie on its side.
_POOR_CONFIDENCE, _FEW_WORDS = 0.75, 60
_CERTAIN = 0.6


def is_installed() -> bool:
    """Return whether the program can be found."""
    return shutil.which(PROGRAM) is not None


@cache
def installed_languages() -> frozenset[str]:
    """Return the languages that the program has data for; none if it is not installed."""
    if not is_installed():
        return frozenset()
    shown = subprocess.run(  # noqa: S603 - a fixed command
        [PROGRAM, "--list-langs"], capture_output=True, text=True, check=False
    )
    return frozenset(line.strip() for line in shown.stdout.splitlines()[1:])


def recogniser(languages: str) -> Recogniser:
    """Return a function that reads pictures in these languages (``spa+eng``)."""

    def recognise(
        page: Any, geometry: PageGeometry, number: int, offset: int
    ) -> tuple[list[Word], str]:
        picture = read_picture(page, languages)
        return words_of_picture(picture or Picture([]), geometry, number, offset)

    return recognise


def read_picture(page: Any, languages: str) -> Picture | None:
    """Return the words of a page as it is displayed; None if the program failed."""
    first = _read(page, 0, languages)
    if first is None or not _is_poor(first.words):
        return first
    best, turn = first, _turn_of(page)
    # The detected side may be the opposite one.
    for other in [turn, (turn + 2) % 4] if turn else []:
        found = _read(page, other, languages)
        if found is not None and _quality(found) > _quality(best):
            best = found
        if not _is_poor(best.words):
            break
    return best


def _quality(picture: Picture) -> float:
    """Return how much was read for certain: upside down, there are many doubtful words."""
    return sum(word.confidence for word in picture.words if word.confidence > _CERTAIN)


def _is_poor(words: list[PictureWord]) -> bool:
    return len(words) < _FEW_WORDS or (
        sum(word.confidence for word in words) < _POOR_CONFIDENCE * len(words)
    )


def _turn_of(page: Any) -> int:
    """Return the quarter turns (clockwise) of the text, as the program detects them."""
    out = _run(_image(page, 0), "--psm", "0", "stdout") or ""
    for line in out.splitlines():
        name, _, value = line.partition(":")
        if name == "Orientation in degrees" and value.strip().isdigit():
            return int(value) // 90 % 4
    return 0


def _read(page: Any, turn: int, languages: str) -> Picture | None:
    image = _image(page, turn)
    out = _run(image, "-l", languages, "--psm", _SPARSE, "stdout", "tsv")
    if out is None:
        return None
    words = list[PictureWord]()
    for row in out.splitlines()[1:]:
        # level, page, block, paragraph, line, word, left, top, width, height, confidence, text
        cells = row.split("\t", 11)
        if len(cells) < 12 or cells[0] != "5" or not cells[11].strip():
            continue
        left, top, width, height = map(int, cells[6:10])
        words.append(
            PictureWord(
                cells[11].strip(),
                left / image.width,
                top / image.height,
                (left + width) / image.width,
                (top + height) / image.height,
                max(0.0, float(cells[10]) / 100),
                ".".join(cells[2:5]),
            )
        )
    return Picture(words, turn)


def _image(page: Any, turn: int) -> pdfium.PdfBitmap:
    """Return the page in grey, turned so that text with this many quarter turns is upright."""
    width, height = page.get_size()
    scale = min(DPI / 72, (MAX_PIXELS / max(1.0, width * height)) ** 0.5)
    return page.render(scale=scale, rotation=(4 - turn) % 4 * 90, grayscale=True)


def _run(image: pdfium.PdfBitmap, *arguments: str) -> str | None:
    """Return what the program writes; None if it fails."""
    data, stride, width = bytes(image.buffer), image.stride, image.width
    rows = (
        data
        if stride == width
        else b"".join(data[y * stride : y * stride + width] for y in range(image.height))
    )
    picture = b"P5 %d %d 255\n" % (width, image.height) + without_dark_bands(rows, width)
    *options, target = [a for a in arguments if a != "tsv"]
    command = [PROGRAM, "stdin", target, *options, "--dpi", str(DPI)]
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command
            command + ["tsv"] * ("tsv" in arguments),
            input=picture,
            capture_output=True,
            timeout=SECONDS_PER_PAGE,
            env={**os.environ, "OMP_THREAD_LIMIT": "1"},
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace")
