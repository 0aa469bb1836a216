"""The parts of the console that need no browser."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from web.console.messages import holes, messages, sentences

from esclusa.model.lifecycle import Lifecycle
from esclusa.web.auth.tokens import Token, token_digest
from esclusa.web.console import catalog, graph, render, translate
from esclusa.web.console.context import LONGEST, _packed, _unpacked, local
from esclusa.web.console.live import movement
from esclusa.web.console.session import Sessions

JOBS = Lifecycle("""
    pending -> processing
    processing -> done | failed | pending
    failed -> pending
""")


def test_every_text_is_in_the_spanish_catalogue() -> None:
    said, spanish = messages(), catalog.catalogue("es")
    assert set(said) - set(spanish) == set()
    assert set(spanish) - set(said) == set()
    for text, forms in spanish.items():
        assert len(forms) == (2 if said[text] else 1)
        for form in forms:
            assert set(re.findall(r"{\w+", form)) <= set(re.findall(r"{\w+", text)), form


def test_every_phrase_is_one_that_the_engine_says() -> None:
    assert {holes(phrase) for phrase in translate.PHRASES} - sentences() == set()


@pytest.mark.parametrize(
    ("text", "spanish"),
    [
        ("attempt 2/5, will retry", "intento 2/5, se reintentará"),
        (
            "given back: budget x is empty until 2026-11-17",
            "devuelto: el presupuesto x está agotado hasta 2026-11-17",
        ),
        (
            "crash: the worker that held it stopped without answering",
            "crash: el trabajador que lo tenía se detuvo sin responder",
        ),
        (
            "posts a: the move b -> c is not declared; from b it can go to d",
            "posts a: el paso b -> c no está declarado; de b puede ir a d",
        ),
        (
            "posts a: the move b -> c is not declared; from d it can go to e",
            None,
        ),  # not one of ours
        ("no answer within {seconds} s of {x}", None),
        ("no answer within {0} s", "sin respuesta en {0} s"),
        ("the shop is closed: come again", None),
        ("", None),
        (": " * 9000, None),
    ],
)
def test_what_the_engine_said_is_told_in_the_language_of_the_page(
    text: str, spanish: str | None
) -> None:
    catalog.language.set("es")
    told = translate.told(text)
    catalog.language.set("en")
    assert told == (spanish or text)
    assert translate.told(text) == text


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
def test_the_browsers_language(header: str, language: str) -> None:
    assert catalog.preferred(header) == language


def test_numbers_and_plurals() -> None:
    catalog.language.set("es")
    assert catalog.number(1234567) == "1.234.567"
    assert catalog.ngettext("{n} record", "{n} records", 1) == "1 registro"
    assert catalog.ngettext("{n} record", "{n} records", 2000) == "2.000 registros"
    catalog.language.set("en")


names = st.lists(
    st.text("abcdefghij_", min_size=1, max_size=8).filter(lambda s: s[0] != "_"),
    min_size=2,
    max_size=7,
    unique=True,
)


@given(names, st.randoms())
def test_drawings_have_no_overlap_and_every_arrow(states: list[str], rng: object) -> None:
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


def test_movement_is_told_from_counts() -> None:
    before = {
        "pending": (10, True),
        "processing": (2, True),
        "done": (0, True),
        "failed": (1, True),
    }
    now = {"pending": (6, True), "processing": (2, True), "done": (4, True), "failed": (1, True)}
    assert movement(JOBS, before, now) == [("pending", "processing", 4), ("processing", "done", 4)]
    born = {**before, "pending": (13, True)}
    assert movement(JOBS, before, born) == [("", "pending", 3)]
    assert movement(JOBS, before, before) == []


def test_movement_into_a_state_that_is_not_counted_to_the_end() -> None:
    before = {
        "pending": (10, True),
        "processing": (0, True),
        "done": (50_000, False),
        "failed": (0, True),
    }
    now = {**before, "pending": (4, True)}
    assert ("processing", "done", 6) in movement(JOBS, before, now)


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
    assert (
        Sessions([maria], clock=lambda: now[0]).visitor(cookie) is not None
    )  # another process, or a restart
    assert (
        Sessions([Token("maria", "operate", token_digest("new"))], clock=lambda: now[0]).visitor(
            cookie
        )
        is None
    )
    assert sessions.visitor(cookie[:-2] + "xx") is None
    assert sessions.visitor("esclusa_session=a.b") is None
    now[0] += 13 * 3600
    assert sessions.visitor(cookie) is None


def test_cookies_of_others_do_not_hide_a_session() -> None:
    maria = Token("maria", "operate", token_digest("secret"))
    sessions = Sessions([maria])
    ours = f"esclusa_session={sessions.open(maria)}"
    for other in ('prefs={"a": 1}', "a b", "x[1]=2", "=", "é=ü"):
        assert sessions.visitor(f"{other}; {ours}") is not None, other
        assert sessions.visitor(f"{ours}; {other}") is not None, other


def test_a_signature_of_odd_characters_is_a_wrong_one() -> None:
    sessions = Sessions([Token("ops", "operate", token_digest("secret"))])
    for odd in ("é", "\\351", "\ud800", '"'):
        assert sessions.visitor(f'esclusa_session="b3Bz.99999999999.x.{odd}"') is None
        assert sessions.visitor(f"esclusa_session=b3Bz.99999999999.x.{odd}") is None


def test_what_the_next_page_tells_fits_its_cookie() -> None:
    for said, details in (
        ("done", ["ñ" * 5000] * 20),
        ("x" * 9000, []),
        ("🚢" * 9000, ["🚢" * 9000] * 8),
    ):
        packed = _packed("good", said, details)
        told = _unpacked(packed)
        assert len(packed) <= LONGEST
        assert told is not None
        assert told["text"][:4] == said[:4]
        assert bool(told["details"]) == bool(details)


def test_never_sent_to_another_site() -> None:
    assert [
        local(p) for p in ("/console/runs?x=1", "//evil", "https://evil", "/\\evil", "", "/a\nb")
    ] == [
        "/console/runs?x=1",
        "/",
        "/",
        "/",
        "/",
        "/",
    ]


def test_ids_that_begin_alike_are_told_apart() -> None:
    first, second = (render.short(f"{'folder-' * 8}{n:05}", 24) for n in (1, 2))
    assert first == "folder-folder-…der-00001"
    assert first != second
    assert len(first) == 24
    assert render.short("twitter:42", 10) == "twitter:42"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.35, "350 ms"),
        (2.98, "3 s"),
        (5.5, "5.5 s"),
        (9.97, "10 s"),
        (42, "42 s"),
        (12000, "3 h 20 min"),
    ],
)
def test_durations(seconds: float, said: str) -> None:
    assert render.duration(seconds) == said
