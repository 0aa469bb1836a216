"""Words of pictures as a recogniser gives them: junk, lost separators, dark bands."""

from __future__ import annotations

from typing import Any

import pypdfium2 as pdfium
import pytest

from esclusa.pipelines.documents.local.dark_bands import without_dark_bands
from esclusa.pipelines.documents.local.misreadings import corrected
from esclusa.pipelines.documents.local.page_geometry import PageGeometry
from esclusa.pipelines.documents.local.picture_words import Picture, words_of_picture
from esclusa.pipelines.documents.local.word_lines import PictureWord

CHAR = 0.009  # the width of a character


def word(text: str, x0: float, y0: float, confidence: float = 0.96) -> PictureWord:
    return PictureWord(text, x0, y0, x0 + CHAR * len(text), y0 + 0.009, confidence, f"{y0}-{x0}")


def read(*words: PictureWord) -> list[Any]:
    """The words that are left, with a statement around them."""
    rows = [
        word(text, x, 0.05 + 0.02 * n)
        for n in range(12)
        for x, text in ((0.05, "PARTIDA"), (0.5, "1.234.567"), (0.7, "2.345.678"))
    ]
    return [w for w in placed([*rows, *words]) if not any(w.text == row.text for row in rows)]


def placed(words: list[PictureWord]) -> list[Any]:
    document = pdfium.PdfDocument.new()
    geometry = PageGeometry(document.new_page(612, 792), 612, 792)
    found, _ = words_of_picture(Picture(words), geometry, 0, 0)
    return found


def test_doubtful_letters_in_leaders_are_dropped() -> None:
    found = read(
        word("CAJA", 0.05, 0.5),
        word("eile", 0.2, 0.5, 0.16),
        word("were", 0.3, 0.5, 0.47),
        word("909.249", 0.5, 0.5, 0.4),
    )
    assert [w.text for w in found] == ["CAJA", "909.249"]


def test_letters_of_a_doubtful_page_stay() -> None:
    words = [word(f"CAJA{n}", 0.05, 0.1 + 0.02 * n, 0.5) for n in range(10)]
    assert len(placed(words)) == 10


@pytest.mark.parametrize(
    ("parts", "joined"),
    [
        (("78", "171-"), ["78.171-"]),
        (("1.575", "233-"), ["1.575.233-"]),
        (("(12", "400)"), ["(12.400)"]),
        (("1234", "567"), ["1234", "567"]),  # not a group of thousands
        (("78", "17"), ["78", "17"]),
    ],
)
def test_lost_mark_of_thousands_is_put_back_with_less_confidence(
    parts: tuple[str, str], joined: list[str]
) -> None:
    first, second = parts
    gap = 1.3 * CHAR
    after = 0.5 + CHAR * len(first) + gap
    found = read(word(first, 0.5, 0.5), word(second, after, 0.5))
    assert [w.text for w in found] == joined
    if len(joined) == 1:
        assert found[0].confidence == pytest.approx(0.7 * 0.96, abs=0.001)


def test_numbers_of_two_columns_stay_apart() -> None:
    found = read(word("78", 0.5, 0.5), word("171", 0.56, 0.5))
    assert [w.text for w in found] == ["78", "171"]


def test_dark_bands_are_inverted_and_rules_and_text_are_not() -> None:
    width, white, dark = 480, b"\xff", b"\x20"
    plain = white * width
    text = white * 200 + dark * 12 + white * (width - 212)
    rule = white * 48 + dark * 384 + white * 48
    band = white * 50 + dark * 166 + white * 6 + dark * 204 + white * 54
    rows = [*[plain] * 40, *[text] * 8, *[rule] * 3, *[plain] * 40, *[band] * 40, *[plain] * 40]
    made = without_dark_bands(b"".join(rows), width)
    shown = [made[y * width : (y + 1) * width] for y in range(len(rows))]
    assert shown[:91] == rows[:91]
    assert shown[131:] == rows[131:]
    assert set(shown[91:131]) == {white * 216 + b"\x00" * 6 + white * 258}


def test_words_with_the_box_of_their_line_are_level_with_it() -> None:
    """Of ``Cost of sales`` one word has the width of the line, another its height and a margin."""
    cost, of, sales = (
        word("Cost", 0.1, 0.4)._replace(line="cost", x1=0.2),
        word("of", 0.14, 0.4)._replace(line="cost", y0=0.398, y1=0.414),
        word("sales", 0.166, 0.4)._replace(line="cost"),
    )
    found = {w.text: w for w in read(cost, of, sales)}
    assert found["of"].middle == pytest.approx(found["sales"].middle, abs=0.2)
    assert found["Cost"].x1 < found["of"].x0


def test_misread_signs_are_those_beside_them() -> None:
    row = [
        ["Advertising", "8", "marketing"],
        ["Nota", "8", "Inventarios"],
        ["a)", "Ventas"],
        ["9)", "Ingresos"],
        ["(MS)", "MUSS", "USS"],
        ["Il.", "Explotacién", "recién", "II"],
    ]
    assert [" ".join(line) for line in corrected(row)] == [
        "Advertising & marketing",
        "Nota 8 Inventarios",
        "a) Ventas",
        "g) Ingresos",
        "(M$) MUS$ US$",
        "II. Explotación recién II",
    ]


@pytest.mark.parametrize(
    ("heading", "expected"),
    [("2922", ["2022"]), ("202", ["2022"]), ("3", []), ("2.022", ["2.022"])],
)
def test_misread_year_of_a_heading_is_one_of_the_page(heading: str, expected: list[str]) -> None:
    above = [word("Al 31 de diciembre de", 0.1, 0.01), word("2023", 0.4, 0.01)]
    found = read(*above, word("2023", 0.5, 0.03), word("2023", 0.6, 0.03), word(heading, 0.7, 0.03))
    assert [w.text for w in found if w.x0 > 400] == expected
