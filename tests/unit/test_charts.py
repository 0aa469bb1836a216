"""Charts: the scale, the marks of the time axis, and what is drawn."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from esclusa.web.console import zones
from esclusa.web.console.charts import Axis, Layer, chart, scale

MIDNIGHT = datetime(2026, 11, 18, tzinfo=UTC)


@pytest.mark.parametrize(
    ("largest", "marks"),
    [
        (0, [0, 1]),
        (1, [0, 0.25, 0.5, 0.75, 1]),
        (7, [0, 2, 4, 6, 8]),
        (95, [0, 25, 50, 75, 100]),
        (101, [0, 50, 100, 150]),
        (1_000_000, [0, 250_000, 500_000, 750_000, 1_000_000]),
    ],
)
def test_a_scale_has_round_marks_to_the_largest_value(largest: float, marks: list[float]) -> None:
    assert scale(largest) == pytest.approx(marks)


def test_a_scale_of_times_is_round_in_minutes_and_hours() -> None:
    assert scale(900, "seconds") == [0, 300, 600, 900]
    assert scale(10_000, "seconds") == [0, 3600, 7200, 10_800]
    assert scale(9 * 86_400, "seconds")[1] == 3 * 86_400
    assert scale(0.02, "seconds")[-1] == pytest.approx(0.02)


@pytest.mark.parametrize("largest", [1, 2, 7, 10, 99, 1000, 9999])
def test_a_scale_of_counts_has_whole_marks(largest: int) -> None:
    marks = scale(largest, "count")
    assert marks[-1] >= largest
    assert all(mark == round(mark) for mark in marks)
    assert len(marks) <= 5


def test_the_marks_of_the_axis_are_times_of_the_readers_zone() -> None:
    zones.current.set(ZoneInfo("America/Santiago"))
    assert Axis(MIDNIGHT, 900, 96).marks()[0] == (12, "00:00")
    assert Axis(MIDNIGHT, 3600, 168).marks()[:2] == [(3, "11-18"), (27, "11-19")]
    zones.current.set(ZoneInfo("UTC"))
    assert Axis(MIDNIGHT, 60, 60).marks()[0] == (10, "00:10")


def test_every_step_has_a_text_and_missing_values_are_left_out() -> None:
    layers = [
        Layer("bars", "good", "moved", [1, 0, 3]),
        Layer("line", "p50", "<p50>", [None, 0.5, None]),
    ]
    axis = Axis(MIDNIGHT, 3600, 3)
    drawing = ET.fromstring(chart("c", "A & B", "x < y", axis, layers, lambda v: f"{v:g}", "rate"))
    texts = [hit[0].text for hit in drawing if hit.get("class") == "hit"]
    assert texts == [
        "2026-11-18 00:00–01:00: moved 1",
        "2026-11-18 01:00–02:00: moved 0 · <p50> 0.5",
        "2026-11-18 02:00–03:00: moved 3",
    ]
    [bars] = [path for path in drawing if path.get("class") == "good"]
    assert str(bars.get("d")).count("M") == 2
    assert drawing[0].text == "A & B"


def test_an_unknown_zone_is_utc() -> None:
    assert zones.of_cookies({"esclusa_zone": "Mars/Olympus"}).key == "UTC"
    assert zones.of_cookies({"esclusa_zone": "America%2FLima"}).key == "America/Lima"
    assert zones.of_cookies({"esclusa_zone": "America/Lima", "esclusa_utc": "1"}).key == "UTC"
    assert "America/Santiago" in zones.names()
    assert zones.find("../etc/passwd") is None
