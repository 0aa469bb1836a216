"""The structured log: its fields, its levels, and that it masks secrets."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esclusa.observability import log, redact
from esclusa.observability.metrics import Metrics
from esclusa.observability.telemetry import Observer


class Lines(io.StringIO):
    terminal = False
    flushes = 0

    def isatty(self) -> bool:
        return self.terminal

    def flush(self) -> None:
        self.flushes += 1

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


@pytest.fixture
def stream() -> Iterator[Lines]:
    lines = Lines()
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield lines
    log.configure("auto", "info")
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_line_is_json_with_cloud_loggings_names(stream: Lines) -> None:
    log.configure("json", "info", stream=stream)
    log.get("esclusa.worker").write(
        "warning",
        "two words\nñ",
        {
            "count": 3,
            "stage": "the pipeline's own",
            "ratio": 0.5,
            "when": datetime(2026, 11, 16),
            "none": None,
        },
    )
    [line] = stream.lines
    assert line.pop("time").endswith("Z")
    assert line == {
        "severity": "WARNING",
        "message": "two words\nñ",
        "logger": "esclusa.worker",
        "count": 3,
        "stage": "the pipeline's own",
        "ratio": 0.5,
        "when": "2026-11-16 00:00:00",
        "none": None,
    }
    assert stream.getvalue().count("\n") == 1
    assert stream.flushes >= 1


@pytest.mark.parametrize(
    ("level", "severities"),
    [("debug", 4), ("info", 3), ("warning", 2), ("error", 1), ("critical", 0)],
)
def test_levels(stream: Lines, level: str, severities: int) -> None:
    log.configure("json", level, stream=stream)
    logger = log.get("x")
    for each in ("debug", "info", "warning", "error"):
        logger.write(each, "a message", {})
    assert [line["severity"] for line in stream.lines] == ["DEBUG", "INFO", "WARNING", "ERROR"][
        4 - severities :
    ]
    assert log.enabled("info") == (level in {"debug", "info"})


def test_auto_is_text_on_a_terminal_and_json_elsewhere(
    stream: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    log.configure("auto", "info", stream=stream)
    log.get("x").write("info", "plain", {})
    assert stream.lines[0]["message"] == "plain"
    stream.terminal = True
    log.configure("auto", "info", stream=stream)
    log.get("x").write("info", "readable", {"count": 3, "api_token": "abc"})
    line = stream.getvalue().splitlines()[-1]
    assert "readable" in line
    assert "count=3" in line
    assert "abc" not in line
    assert not line.startswith("{")


def test_reserved_field_names_get_an_underscore(stream: Lines) -> None:
    log.configure("json", "info", stream=stream)
    log.get("x").write(
        "info",
        "a message",
        {
            "message": "theirs",
            "time": 1,
            "severity": "LOW",
            "event": "e",
            "logging.googleapis.com/trace": "t",
        },
    )
    [line] = stream.lines
    assert (line["message"], line["severity"]) == ("a message", "INFO")
    assert (line["message_"], line["time_"], line["severity_"], line["event_"]) == (
        "theirs",
        1,
        "LOW",
        "e",
    )
    assert "logging.googleapis.com/trace" not in line


def test_an_exception_is_logged_with_its_stack_and_without_secrets(stream: Lines) -> None:
    log.configure("json", "info", stream=stream)
    try:
        raise ValueError("GET https://api.example/x?ticket=ABC-123 failed")
    except ValueError:
        log.get("x").error("broke", exc_info=True)
    [line] = stream.lines
    assert "Traceback" in line["stack_trace"]
    assert "ticket=***" in line["stack_trace"]
    assert "ABC-123" not in stream.getvalue()


@pytest.mark.parametrize(("level", "shown"), [("info", 3), ("warning", 2), ("error", 0)])
def test_a_settlement_has_the_traceback_of_an_unexpected_error(
    stream: Lines, level: str, shown: int
) -> None:
    log.configure("json", level, stream=stream)
    details = [
        {"record": "expected", "error_type": "http"},
        {"record": "unexpected", "traceback": "Traceback …\nKeyError: 'token=ABC-123'"},
        {"record": "another", "traceback": "Traceback …\nKeyError: 'x'"},
    ]
    Observer(Metrics()).settled("s", "retried", [0.1] * 3, lambda n: details[n])
    assert len(stream.lines) == shown
    if shown:
        line = stream.lines[-2]
        assert (line["severity"], line["record"]) == ("WARNING", "unexpected")
        assert line["stack_trace"] == "Traceback …\nKeyError: 'token=***'"
        assert "traceback" not in line


def test_a_traceback_is_readable_on_a_terminal(stream: Lines) -> None:
    log.configure("text", "info", stream=stream)
    Observer(Metrics()).settled("s", "retried", [0.1], lambda n: {"traceback": "one\n  two"})
    assert "one\n  two" in stream.getvalue()


def test_lines_of_libraries_are_written_too(stream: Lines) -> None:
    log.configure("json", "info", stream=stream)
    log.configure("json", "info", stream=stream)
    logging.getLogger("some.library").info('%s - "GET /x?token=%s"', "127.0.0.1", "s3cr3t")
    logging.getLogger("aiohttp").debug("below the level")
    [line] = stream.lines
    assert (line["severity"], line["logger"], line["message"]) == (
        "INFO",
        "some.library",
        '127.0.0.1 - "GET /x?token=***"',
    )


def test_values_that_json_cannot_hold(stream: Lines) -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    log.configure("json", "info", stream=stream)
    log.get("x").write(
        "info",
        "odd \ud800",
        {
            "nan": float("nan"),
            "inf": float("inf"),
            "broken": Broken(),
            "deep": {"a": {1: {(1, 2): b"\xff"}}},
            "many": {3},
        },
    )
    [line] = stream.lines
    assert (line["nan"], line["inf"], line["broken"], line["many"]) == (
        "nan",
        "inf",
        "<Broken>",
        [3],
    )


def test_a_closed_stream_is_ignored(stream: Lines) -> None:
    log.configure("json", "info", stream=stream)
    stream.close()
    log.get("x").write("info", "not written", {})


@pytest.mark.parametrize(("format", "level"), [("xml", "info"), ("json", "loud")])
def test_an_unknown_format_or_level_is_refused(format: Any, level: str) -> None:
    with pytest.raises(ValueError, match="unknown log"):
        log.configure(format, level)


def test_bound_fields_are_on_every_line(stream: Lines) -> None:
    log.configure("json", "info", stream=stream)
    logger = log.get("x").bind(worker="w1", run="r1")
    logger.write("info", "a", {"run": "r2"})
    logger.write("info", "b", {})
    assert [(line["worker"], line["run"]) for line in stream.lines] == [("w1", "r2"), ("w1", "r1")]


def test_without_output_no_library_is_imported() -> None:
    code = (
        "import sys, esclusa; from esclusa.observability import log, metrics, telemetry, alerts;"
        "log.configure('json', 'error');"
        "o = telemetry.Observer();"
        "o.settled('s', 'moved', [0.1], lambda n: {}); o.event('info', 'x');"
        "libraries = 'structlog', 'prometheus_client', 'opentelemetry', 'aiohttp', 'rich';"
        "print([m for m in libraries if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


SECRET = "S3cr3t-Value.x"


@pytest.mark.parametrize(
    "shown",
    [
        f"postgresql://me:{SECRET}@db:5432/x",
        f"postgresql://me:{SECRET}@more@db/x",
        f"redis://:{SECRET}@host",
        f"https://api.example/v1?ticket={SECRET}&fecha=16112026",
        f"https://api.example/v1?fecha=1&access_token={SECRET}",
        f"https://x/y?X-Amz-Signature={SECRET}&X-Amz-Credential={SECRET}",
        f"https://x/y?key={SECRET}#frag",
        f"https://x/cb#access_token={SECRET}",
        f"https://x/y?sig={SECRET}",
        f"https://x/y?accesstoken={SECRET}",
        f"Authorization: Bearer {SECRET}",
        f"authorization=Basic {SECRET}",
        f"{{'token': '{SECRET}'}}",
        f'{{"api_key": "{SECRET}", "a": 1}}',
        f'{{"password": "a\\"{SECRET}"}}',
        f"host=db user=me password={SECRET} dbname=x",
        f"host=db password='{SECRET} and more' dbname=x",
        f'password = "a\\"{SECRET}"',
        f"PGPASSWORD={SECRET}",
        f"ESCLUSA_API_TOKEN={SECRET}",
        f'"ExponentPushToken[{SECRET}]" is not a registered push notification recipient',
    ],
)
def test_secrets_are_recognized_by_their_form(shown: str) -> None:
    masked = redact.text(shown)
    assert SECRET not in masked
    assert "***" in masked
    assert redact.text(masked) == masked


@pytest.mark.parametrize(
    "plain",
    [
        "https://x/y?monkey=banana&page=2",
        "http://host:8080/path@x",
        "a bearer of news",
        "12:30:45",
        "budget = 400",
        "basic understanding",
        "mailto:a@b.c",
    ],
)
def test_harmless_text_stays(plain: str) -> None:
    assert redact.text(plain) == plain


@pytest.mark.parametrize(
    "name",
    [
        "token",
        "apiToken",
        "API_KEY",
        "x-api-key",
        "password",
        "client_secret",
        "Authorization",
        "ticket",
        "accessKeyId",
        "Set-Cookie",
    ],
)
def test_secrets_are_recognized_by_their_name(name: str) -> None:
    assert redact.fields({name: SECRET}) == {name: "***"}
    assert redact.fields({"deep": [{name: {"x": SECRET}}]}) == {"deep": [{name: "***"}]}


def test_numbers_and_row_keys_stay() -> None:
    values = {
        "tokens": 12,
        "record_key": "post-1",
        "provider_ticket_id": "6fa8",
        "keyboard": "qwerty",
        "tickets": None,
        "secretary": "Ana",
    }
    assert redact.fields(values) == values


def test_a_long_text_is_cut() -> None:
    assert len(redact.text("x" * 1_000_000)) < 17_000


@given(
    st.dictionaries(
        st.text(max_size=10),
        st.recursive(st.text() | st.floats() | st.binary() | st.none(), st.lists, max_leaves=5),
    )
)
def test_any_value_becomes_json(values: dict[str, Any]) -> None:
    json.dumps(redact.fields(values), allow_nan=False)
