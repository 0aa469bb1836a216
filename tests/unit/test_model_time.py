"""Durations, schedules and budget windows, at clock changes too."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esclusa.model import duration, schedule
from esclusa.model.budget import Budget, BudgetEmpty, Granted, Rate, Window, WindowUse
from esclusa.model.budget_state import give_back, open_windows, reserve
from esclusa.model.errors import DeclarationError

SANTIAGO = ZoneInfo("America/Santiago")


# durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("5m", 300),
        ("2h", 7200),
        ("1d", 86400),
        ("1w", 604800),
        ("250ms", 0.25),
        ("1h 30m", 5400),
        ("1h30m", 5400),
        ("1.5m", 90),
        ("15", 15),
        (" 5 M ", 300),
        (15, 15),
        (0.5, 0.5),
        (0, 0),
        (timedelta(minutes=2), 120),
    ],
)
def test_durations_as_people_write_them(text: str, seconds: float) -> None:
    assert duration.seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "  ",
        "soon",
        "5 minutes",
        "-5m",
        "5x",
        "m",
        "1h and",
        -1,
        True,
        float("nan"),
        float("inf"),
        1e11,
        timedelta(-1),
    ],
)
def test_a_wrong_duration_is_refused_with_an_example(bad: object) -> None:
    with pytest.raises(ValueError, match="a duration such as 30s"):
        duration.seconds(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.012, "12ms"),
        (3.2, "3.2s"),
        (5, "5s"),
        (65, "1m 5s"),
        (3900, "1h 5m"),
        (90061, "1d 1h"),
        (60, "1m"),
    ],
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert duration.words(seconds) == words


# schedules


def slots(line: schedule.Schedule, start: datetime, end: datetime) -> list[datetime]:
    out, moment = [], start
    while (slot := line.next_after(moment)) is not None and slot < end:
        assert slot > moment
        out.append(slot)
        moment = slot
    return out


@pytest.mark.parametrize(
    "line", ["30 23 * * *", "0 0 * * *", "15 0 * * *", "30 1 * * *", "59 23 * * *", "17 3 * * *"]
)
@pytest.mark.parametrize(
    "around",
    [
        datetime(2026, 4, 4, tzinfo=UTC),
        datetime(2026, 9, 5, tzinfo=UTC),
        datetime(2027, 4, 3, tzinfo=UTC),
    ],
)
def test_a_daily_line_fires_once_a_day_around_both_clock_changes(
    line: str, around: datetime
) -> None:
    fired = slots(
        schedule.cron(line, "America/Santiago"),
        around - timedelta(days=3),
        around + timedelta(days=4),
    )
    days = [slot.astimezone(SANTIAGO).date() for slot in fired]
    assert len(days) == len(set(days))
    assert all(b - a == timedelta(days=1) for a, b in pairwise(days))
    assert len(days) == 7
    for slot in fired:
        assert slot.utcoffset() == timedelta(0)


def test_an_hourly_line_goes_on_through_a_clock_change() -> None:
    fired = slots(
        schedule.cron("5 * * * *", "America/Santiago"),
        datetime(2026, 9, 5, 20, tzinfo=UTC),
        datetime(2026, 9, 6, 12, tzinfo=UTC),
    )
    assert all(b - a == timedelta(hours=1) for a, b in pairwise(fired))


LORD_HOWE = "Australia/Lord_Howe"
"""Its clocks change by half an hour.

On 2026-04-05 from 02:00 back to 01:30 (15:00 UTC), on 2026-10-04 from 02:00 to 02:30 (15:30 UTC).
"""
CHANGES = [datetime(2026, 4, 4, 15, tzinfo=UTC), datetime(2026, 10, 3, 15, 30, tzinfo=UTC)]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    "line",
    [
        "*/15 * * * *",
        "*/15 3 * * *",
        "*/15 0 * * *",
        "10 * * * *",
        "*/20 1-3 * * *",
        "* 2 * * *",
        "0 0 3 * * *",
    ],
)
def test_a_line_with_a_star_fires_in_every_minute_that_matches(line: str, change: datetime) -> None:
    start, end = change - timedelta(hours=30), change + timedelta(hours=30)
    minutes = [start + timedelta(minutes=n) for n in range(1, 60 * 60)]
    parts = line.split()[-5:]
    wanted = [m for m in minutes if _matches(parts, m.astimezone(ZoneInfo(LORD_HOWE)))]
    assert slots(schedule.cron(line, LORD_HOWE), start, end) == wanted


def _matches(parts: list[str], local: datetime) -> bool:
    def one(field: str, number: int) -> bool:
        span, _, step = field.partition("/")
        least, _, most = span.partition("-")
        within = span == "*" or int(least) <= number <= int(most or least)
        return within and number % int(step or 1) == 0

    return one(parts[0], local.minute) and one(parts[1], local.hour)


@pytest.mark.parametrize("zone", [LORD_HOWE, "America/Santiago", "Europe/Madrid"])
@pytest.mark.parametrize(
    "line",
    [
        "45 1 * * *",
        "15 2 * * *",
        "40 1,2 * * *",
        "15 0 * * *",
        "50 23 * * *",
        "30 2 * * *",
        "0 30 2 * * *",
    ],
)
def test_a_daily_line_runs_once_a_day_from_any_starting_time(line: str, zone: str) -> None:
    """Also for a process that starts in the hour that comes twice."""
    start, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
    cron = schedule.cron(line, zone)
    fired = slots(cron, start, end)
    days = Counter(slot.astimezone(ZoneInfo(zone)).date() for slot in fired)
    assert set(days.values()) == {2 if "1,2" in line else 1}
    assert len(days) in (365, 366)
    for before, after in pairwise(fired):
        if after - before != timedelta(days=1):  # around a change
            moment = before
            while moment < after:
                assert cron.next_after(moment) == after
                moment += timedelta(minutes=7)


def test_a_line_that_never_runs_is_refused() -> None:
    with pytest.raises(DeclarationError, match="never runs"):
        schedule.cron("0 0 */31 * MON#3")


def test_a_missed_slot_is_not_replayed_in_a_burst() -> None:
    line = schedule.cron("*/5 * * * *")
    wake = datetime(2026, 1, 5, 12, 3, tzinfo=UTC)  # after three days of sleep
    assert line.next_after(wake) == datetime(2026, 1, 5, 12, 5, tzinfo=UTC)
    assert schedule.every("5m").next_after(wake) == datetime(2026, 1, 5, 12, 5, tzinfo=UTC)


@given(
    st.datetimes(
        min_value=datetime(2000, 1, 1), max_value=datetime(2090, 1, 1), timezones=st.just(UTC)
    ),
    st.sampled_from([0.1, 1, 7, 30, 60, 300, 3600, 86400]),
)
def test_every_process_computes_the_same_slots(moment: datetime, seconds: float) -> None:
    line = schedule.every(seconds)
    slot = line.next_after(moment)
    assert moment < slot <= moment + timedelta(seconds=seconds * 1.001)
    assert line.next_after(slot) > slot
    if seconds >= 1:
        assert slot.timestamp() % seconds == 0
        assert line.next_after(slot) == slot + timedelta(seconds=seconds)
        assert line.next_after(slot - timedelta(microseconds=1)) == slot


def test_the_time_zone_of_the_argument_does_not_matter() -> None:
    moment = datetime(2026, 5, 5, 12, tzinfo=UTC)
    for line in (schedule.every("1h"), schedule.cron("0 9 * * *", "America/Santiago")):
        assert line.next_after(moment) == line.next_after(moment.astimezone(ZoneInfo("Asia/Tokyo")))
    assert schedule.cron("0 9 * * *", "America/Santiago").next_after(moment) == datetime(
        2026, 5, 5, 13, tzinfo=UTC
    )


def test_schedules_from_options() -> None:
    assert schedule.parse("5m") == schedule.Every(300)
    assert schedule.parse(30) == schedule.Every(30)
    assert schedule.parse(timedelta(hours=1)) == schedule.Every(3600)
    assert schedule.parse(None) == schedule.Always()
    assert schedule.parse(schedule.Manual()).next_after(datetime.now(UTC)) is None
    assert schedule.Always().next_after(datetime.now(UTC)) is None
    assert [
        str(s)
        for s in (
            schedule.every("5m"),
            schedule.cron("0 3 * * *"),
            schedule.Manual(),
            schedule.Always(),
        )
    ] == [
        "every 5m",
        "cron 0 3 * * * (UTC)",
        "manual",
        "always",
    ]


@pytest.mark.parametrize("bad", ["soon", 0, "0s", -3])
def test_a_wrong_interval_is_refused(bad: str | float) -> None:
    with pytest.raises(DeclarationError):
        schedule.every(bad)


def test_a_wrong_cron_line_and_zone_are_reported_together() -> None:
    with pytest.raises(DeclarationError) as caught:
        schedule.cron("61 * * * *", "Chile/Nowhere")
    assert len(caught.value.faults) == 2
    with pytest.raises(DeclarationError) as caught:
        schedule.cron(5, None)  # type: ignore[arg-type]
    assert len(caught.value.faults) == 2


# budget windows


@pytest.mark.parametrize(
    ("per", "zone", "now", "start", "reset"),
    [
        (
            "second",
            "UTC",
            "2026-03-01T00:00:00.900000+00:00",
            "2026-03-01T00:00:00+00:00",
            "2026-03-01T00:00:01+00:00",
        ),
        (
            "minute",
            "America/Santiago",
            "2026-12-31T23:59:59+00:00",
            "2026-12-31T23:59:00+00:00",
            "2027-01-01T00:00:00+00:00",
        ),
        (
            "hour",
            "Asia/Kolkata",
            "2026-05-05T10:15:00+00:00",
            "2026-05-05T09:30:00+00:00",
            "2026-05-05T10:30:00+00:00",
        ),
        (
            "day",
            "UTC",
            "2026-02-28T23:59:59.999999+00:00",
            "2026-02-28T00:00:00+00:00",
            "2026-03-01T00:00:00+00:00",
        ),
        (
            "day",
            "America/Los_Angeles",
            "2026-11-16T02:00:00+00:00",
            "2026-11-15T08:00:00+00:00",
            "2026-11-16T08:00:00+00:00",
        ),
        # Los Angeles, the long day (25 h) and the short one (23 h)
        (
            "day",
            "America/Los_Angeles",
            "2026-11-01T20:00:00+00:00",
            "2026-11-01T07:00:00+00:00",
            "2026-11-02T08:00:00+00:00",
        ),
        (
            "day",
            "America/Los_Angeles",
            "2026-03-08T20:00:00+00:00",
            "2026-03-08T08:00:00+00:00",
            "2026-03-09T07:00:00+00:00",
        ),
        # Santiago changes at midnight: on 2026-04-04 the hour before it comes twice,
        # on 2026-09-06 the day begins at 01:00
        (
            "day",
            "America/Santiago",
            "2026-04-04T12:00:00+00:00",
            "2026-04-04T03:00:00+00:00",
            "2026-04-05T04:00:00+00:00",
        ),
        (
            "day",
            "America/Santiago",
            "2026-09-06T12:00:00+00:00",
            "2026-09-06T04:00:00+00:00",
            "2026-09-07T03:00:00+00:00",
        ),
        (
            "month",
            "UTC",
            "2028-02-29T12:00:00+00:00",
            "2028-02-01T00:00:00+00:00",
            "2028-03-01T00:00:00+00:00",
        ),
        (
            "month",
            "UTC",
            "2026-12-31T23:59:59+00:00",
            "2026-12-01T00:00:00+00:00",
            "2027-01-01T00:00:00+00:00",
        ),
        (
            "month",
            "America/Santiago",
            "2026-04-20T00:00:00+00:00",
            "2026-04-01T03:00:00+00:00",
            "2026-05-01T04:00:00+00:00",
        ),
    ],
)
def test_where_a_window_begins_and_ends(
    per: str, zone: str, now: str, start: str, reset: str
) -> None:
    window = Window(per, 1, zone)  # type: ignore[arg-type]
    moment = datetime.fromisoformat(now)
    assert window.start(moment) == datetime.fromisoformat(start)
    assert window.reset(moment) == datetime.fromisoformat(reset)


zones = st.sampled_from(
    [
        "UTC",
        "America/Santiago",
        "America/Los_Angeles",
        "Asia/Kolkata",
        "Australia/Lord_Howe",
        "Europe/Madrid",
        "Africa/Cairo",
    ]
)


@given(
    st.datetimes(
        min_value=datetime(2020, 1, 1), max_value=datetime(2040, 1, 1), timezones=st.just(UTC)
    ),
    zones,
    st.sampled_from(["second", "minute", "hour", "day", "month"]),
)
def test_windows_follow_each_other_without_gap(now: datetime, zone: str, per: str) -> None:
    window = Window(per, 1, zone)  # type: ignore[arg-type]
    start, reset = window.start(now), window.reset(now)
    assert start <= now < reset
    assert window.start(start) == start
    assert window.reset(start) == reset
    assert window.start(reset) == reset
    last = reset - timedelta(microseconds=1)
    assert (window.start(last), window.reset(last)) == (start, reset)


@pytest.mark.parametrize("per", ["minute", "hour", "day", "month"])
@pytest.mark.parametrize("zone", [LORD_HOWE, "America/Santiago", "Africa/Cairo"])
def test_windows_follow_each_other_around_every_change_of_clocks(zone: str, per: str) -> None:
    window = Window(per, 1, zone)  # type: ignore[arg-type]
    place, moment = ZoneInfo(zone), datetime(2026, 1, 1, tzinfo=UTC)
    while moment.year == 2026:
        later = moment + timedelta(hours=12)
        if moment.astimezone(place).utcoffset() != later.astimezone(place).utcoffset():
            for minute in range(-90, 15 * 60):
                now = moment + timedelta(minutes=minute, seconds=17)
                start, reset = window.start(now), window.reset(now)
                assert start <= now < reset
                assert window.start(reset) == reset
                assert (window.start(start), window.reset(start)) == (start, reset)
                last = reset - timedelta(microseconds=1)
                assert (window.start(last), window.reset(last)) == (start, reset)
        moment = later


@pytest.mark.parametrize(
    ("windows", "fault"),
    [
        ((), "no window"),
        ((Window("day", -1),), "0 or more"),
        ((Window("day", 1.5),), "whole number"),  # type: ignore[arg-type]
        ((Window("fortnight", 1),), "'fortnight' is not a window; there are second"),  # type: ignore[arg-type]
        ((Window("day", 1, "Mars/Base"),), "time zone"),
        ((Window("day", 1, None),), "time zone"),  # type: ignore[arg-type]
        ((Window("day", 1), Window("day", 2)), "two windows"),
        ((Window("day", 1), Rate(2, "day")), "two windows"),
        ((Rate(5, "month"),), "'month' is not the period of a rate; there are second"),
        ((Rate(5, "day", burst=6),), "burst must be a whole number from 1 to its limit, 5"),
        ((Rate(5, "day", burst=0),), "burst must be a whole number from 1"),
        ((Rate(5, "day", late=-1),), "late must be a number of seconds from 0 to 3600, not -1"),
    ],
)
def test_a_wrong_budget_is_refused(windows: tuple[Window | Rate, ...], fault: str) -> None:
    with pytest.raises(DeclarationError, match=fault):
        Budget("b", *windows)


def test_what_is_left_and_the_message_when_nothing_is() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert WindowUse("b", "day", 5, 3, now, now, {}).left == 2
    assert WindowUse("b", "day", 5, 9, now, now, {}).left == 0
    assert (
        str(BudgetEmpty("tracer", now)) == "budget tracer is empty until 2026-01-01 00:00:00+00:00"
    )


@pytest.mark.parametrize("seed", range(20))
def test_a_rate_holds_whatever_is_late_or_given_back(seed: int) -> None:
    """Turns are reserved ahead, some are missed and given back, and any other may be late."""
    rng, rate = Random(seed), Rate(10, "minute", late=6)
    now, turns = datetime(2026, 1, 1, tzinfo=UTC), list[datetime]()
    windows = open_windows([rate], now)
    for _ in range(60):
        now += timedelta(seconds=rng.choice([0, 0, 0, 1, 5, 14, 30]))
        answer = reserve(windows, 2, "s", 2, now=now, barred=None, ahead=200)
        if isinstance(answer, Granted):
            turns.append(answer.at)
        missed = [turn for turn in turns if now - timedelta(seconds=20) < turn <= now]
        if missed and rng.random() < 0.4:
            turns.remove(given_back := rng.choice(missed))
            give_back(windows, 2, "s", given_back)
    assert len(turns) > 20
    for turn in turns:
        late = turn + timedelta(seconds=6)
        reached = [late, *(other for other in turns if other > turn)]
        assert 2 * sum(late <= moment < late + timedelta(minutes=1) for moment in reached) <= 10
        among = [other for other in turns if turn <= other < turn + rate.period]
        assert 2 * len(among) <= 10
