"""Parts of the console that need no browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from web.console.messages import SOURCE, Messages, messages, messages_of

from esclusa.model.decide import fault_error
from esclusa.model.errors import Failure
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.texts import TEXTS, Text, text
from esclusa.web.auth.tokens import Token, token_digest
from esclusa.web.console import catalog, graph, page_data, render, translate
from esclusa.web.console.context import FLASH_LENGTH, pack_flash, unpack_flash
from esclusa.web.console.forms import local
from esclusa.web.console.live import net_moves
from esclusa.web.console.session import Sessions

JOBS = Lifecycle("""
    pending -> processing
    processing -> done | failed | pending
    failed -> pending
""")
TRACE_VIEW = SOURCE / "pipelines" / "documents" / "console"
NOON = datetime(2026, 11, 17, 12, tzinfo=UTC)


@pytest.fixture
def spanish() -> Iterator[None]:
    token = catalog.current.set(catalog.load("es"))
    yield
    catalog.current.reset(token)


@pytest.mark.parametrize(
    ("used", "folder"),
    [(messages(), catalog.FOLDER), (messages_of(TRACE_VIEW), TRACE_VIEW / "languages")],
    ids=["console", "trace view"],
)
def test_every_text_has_a_spanish_translation(used: Messages, folder: Path) -> None:
    translated = catalog.load("es", [folder]).messages
    assert set(used) - set(translated) == set()
    assert set(translated) - set(used) == set()
    for english, forms in translated.items():
        assert len(forms) == (2 if used[english] else 1)
        for form in forms:
            assert set(re.findall(r"{\w+", form)) <= set(re.findall(r"{\w+", english)), form


def test_every_code_has_a_spanish_translation() -> None:
    assert set(TEXTS.values()) <= set(catalog.load("es").messages)


def test_a_code_with_values_becomes_a_sentence_in_the_language_of_the_page(spanish: None) -> None:
    stored = text("budget_empty", budget="x", until=NOON).dump()
    assert translate.stored(stored) == (
        "el presupuesto x está agotado hasta 2026-11-17 12:00:00 UTC"
    )
    assert translate.stored(text("retrying_of", attempt=2, tries=5).dump()) == (
        "intento 2/5, se reintentará"
    )
    nested = text("run_stopped", why=text("budget_empty", budget="x", until=NOON))
    assert translate.sentence(nested) == (
        "devuelto: el presupuesto x está agotado hasta 2026-11-17 12:00:00 UTC"
    )


def test_a_sentence_of_a_pipeline_is_in_the_language_of_the_page(spanish: None) -> None:
    refused = Failure(Text("the provider refused the search: {why}", why="403 no"))
    stopped = Text("{why} (post {post}); the run stops here", why=refused, post="p1")
    assert translate.stored(stopped.dump()) == (
        "el proveedor rechazó la búsqueda: 403 no (publicación p1); la ejecución se detiene aquí"
    )
    shown = page_data.error(fault_error(Failure(stopped), 1, NOON))
    assert shown is not None
    assert shown["message"] == translate.stored(stopped.dump())


@pytest.mark.parametrize(
    "words",
    [
        "permanent error",
        "the shop is closed: come again",
        "{n} {0} {code}",
        '{"code": "no such code"}',
        '{"code": "exhausted"}',
        "",
    ],
)
def test_words_of_a_person_are_not_translated(spanish: None, words: str) -> None:
    assert translate.stored(words) == words


def test_secrets_in_values_are_masked(spanish: None) -> None:
    sentence = translate.sentence(text("rejected", why="password=hunter2"))
    assert "hunter2" not in sentence
    for stored in (
        {"message": "password=hunter2"},
        {"message": "x", "code": "rejected", "values": {"why": "password=hunter2"}},
    ):
        assert "hunter2" not in str(page_data.error(stored))


def test_the_message_of_a_stored_error_is_translated(spanish: None) -> None:
    wrong = text("wrong_answer", stage="a.b", got="str")
    stored = {"message": str(wrong), "code": wrong.code, "values": dict(wrong.values)}
    shown = page_data.error(stored)
    assert shown is not None
    assert shown["message"] == "etapa a.b: la función debe responder To, Retry o Wait, no str"


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("es-CL,es;q=0.9,en;q=0.8", "es"),
        ("de,en-GB;q=0.7,es;q=0.3", "en"),
        ("", "en"),
        ("fr;q=x, es;q=0.1", "es"),
        ("*", "en"),
    ],
)
def test_the_language_follows_the_browser(header: str, language: str) -> None:
    assert catalog.preferred(header) == language


def test_numbers_and_plurals(spanish: None) -> None:
    assert catalog.number(1234567) == "1.234.567"
    assert catalog.ngettext("{n} record", "{n} records", 1) == "1 registro"
    assert catalog.ngettext("{n} record", "{n} records", 2000) == "2.000 registros"


names = st.lists(
    st.text("abcdefghij_", min_size=1, max_size=8).filter(lambda s: s[0] != "_"),
    min_size=2,
    max_size=7,
    unique=True,
)


@given(names, st.randoms())
def test_a_drawing_has_every_arrow_and_no_overlap(states: list[str], rng: object) -> None:
    lines = [f"{a} -> {b}" for a, b in pairwise(states)]
    for a in states:
        b = rng.choice(states)  # type: ignore[attr-defined]
        if a != b:
            lines.append(f"{a} -> {b}")
    life = Lifecycle("\n".join(lines), endless=True)
    drawing = graph.draw(life)
    assert {n.state for n in drawing.nodes} == set(life.states)
    assert {(e.frm, e.to) for e in drawing.edges} == set(life.moves)
    boxes = [(n.x, n.y, n.x + n.width, n.y + n.height) for n in drawing.nodes]
    for i, a_box in enumerate(boxes):
        assert a_box[0] >= 0
        assert a_box[1] >= 0
        assert a_box[2] <= drawing.width
        assert a_box[3] <= drawing.height
        for b_box in boxes[i + 1 :]:
            assert (
                a_box[2] <= b_box[0]
                or b_box[2] <= a_box[0]
                or a_box[3] <= b_box[1]
                or b_box[3] <= a_box[1]
            )


def test_net_moves_follow_from_two_counts() -> None:
    before = {
        "pending": (10, True),
        "processing": (2, True),
        "done": (0, True),
        "failed": (1, True),
    }
    now = {"pending": (6, True), "processing": (2, True), "done": (4, True), "failed": (1, True)}
    assert net_moves(JOBS, before, now) == [("pending", "processing", 4), ("processing", "done", 4)]
    inserted = {**before, "pending": (13, True)}
    assert net_moves(JOBS, before, inserted) == [("", "pending", 3)]
    assert net_moves(JOBS, before, before) == []


def test_net_moves_into_a_state_that_is_not_counted_to_the_end() -> None:
    before = {
        "pending": (10, True),
        "processing": (0, True),
        "done": (50_000, False),
        "failed": (0, True),
    }
    now = {**before, "pending": (4, True)}
    assert ("processing", "done", 6) in net_moves(JOBS, before, now)


def test_sessions() -> None:
    now = [1000.0]
    maria = Token("maria", "operate", token_digest("secret"))
    sessions = Sessions([maria], clock=lambda: now[0])
    cookie = f"esclusa_session={sessions.open(maria)}"
    visitor = sessions.visitor(cookie)
    assert visitor is not None
    assert (visitor.who, visitor.role) == ("console:maria", "operate")
    assert sessions.genuine(visitor.nonce, sessions.form_token(visitor.nonce))
    assert not sessions.genuine("", sessions.form_token(""))
    assert not sessions.genuine(visitor.nonce, "x")
    after_restart = Sessions([maria], clock=lambda: now[0])
    assert after_restart.visitor(cookie) is not None
    new_secret = Token("maria", "operate", token_digest("new"))
    assert Sessions([new_secret], clock=lambda: now[0]).visitor(cookie) is None
    assert sessions.visitor(cookie[:-2] + "xx") is None
    assert sessions.visitor("esclusa_session=a.b") is None
    now[0] += 13 * 3600
    assert sessions.visitor(cookie) is None


def test_malformed_cookies_of_other_programs_do_not_hide_a_session() -> None:
    maria = Token("maria", "operate", token_digest("secret"))
    sessions = Sessions([maria])
    session = f"esclusa_session={sessions.open(maria)}"
    for other in ('prefs={"a": 1}', "a b", "x[1]=2", "=", "é=ü"):
        assert sessions.visitor(f"{other}; {session}") is not None, other
        assert sessions.visitor(f"{session}; {other}") is not None, other


def test_a_signature_with_odd_characters_is_invalid() -> None:
    sessions = Sessions([Token("ops", "operate", token_digest("secret"))])
    for odd in ("é", "\\351", "\ud800", '"'):
        assert sessions.visitor(f'esclusa_session="b3Bz.99999999999.x.{odd}"') is None
        assert sessions.visitor(f"esclusa_session=b3Bz.99999999999.x.{odd}") is None


def test_the_message_for_the_next_page_fits_its_cookie() -> None:
    for message, details in (
        ("done", ["ñ" * 5000] * 20),
        ("x" * 9000, []),
        ("🚢" * 9000, ["🚢" * 9000] * 8),
    ):
        packed = pack_flash("good", message, details)
        unpacked = unpack_flash(packed)
        assert len(packed) <= FLASH_LENGTH
        assert unpacked is not None
        assert unpacked["text"][:4] == message[:4]
        assert bool(unpacked["details"]) == bool(details)


def test_a_form_never_leads_to_another_site() -> None:
    paths = ("/console/runs?x=1", "//evil", "https://evil", "/\\evil", "", "/a\nb")
    assert [local(path) for path in paths] == ["/console/runs?x=1", "/", "/", "/", "/", "/"]


def test_shortened_ids_keep_their_end() -> None:
    first, second = (render.short(f"{'folder-' * 8}{n:05}", 24) for n in (1, 2))
    assert first == "folder-folder-…der-00001"
    assert first != second
    assert len(first) == 24
    assert render.short("twitter:42", 10) == "twitter:42"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.35, "350 ms"),
        (2.98, "3 s"),
        (5.5, "5.5 s"),
        (9.97, "10 s"),
        (42, "42 s"),
        (12000, "3 h 20 min"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert render.duration(seconds) == text
