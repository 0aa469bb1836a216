"""Pages and static files are compressed for clients that accept it; answers of the API are not."""

from __future__ import annotations

import gzip
import re

import brotli
import pytest
from web.shop import Client

from esclusa.web.compression import accepted_encoding

DECODE = {"gzip": gzip.decompress, "br": brotli.decompress}


async def raw(shop: Client, path: str, **headers: str) -> tuple[dict[str, str], bytes]:
    """The headers and the body as they are sent."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{lines}\r\n"
    answer = await shop.send_raw(head.encode())
    top, _, body = answer.partition(b"\r\n\r\n")
    first, *rest = top.decode().split("\r\n")
    found = {name.lower(): value for name, value in (line.split(": ", 1) for line in rest)}
    return found | {":status": first.split()[1]}, body


@pytest.mark.parametrize("encoding", ["gzip", "br"])
async def test_a_page_and_its_files_are_compressed(shop: Client, encoding: str) -> None:
    plain, page = await raw(shop, "/console/stages")
    assert "content-encoding" not in plain
    assert "accept-encoding" in plain["vary"].lower()
    headers, body = await raw(shop, "/console/stages", Accept_Encoding=encoding)
    assert headers["content-encoding"] == encoding
    assert int(headers["content-length"]) == len(body) < len(page)
    assert b"<h1>Stages</h1>" in DECODE[encoding](body)
    css = re.search(rb'href="(/console/static/console\.css\?v=\w+)"', page)
    assert css is not None
    path = css[1].decode()
    whole, text = await raw(shop, path)
    small, packed = await raw(shop, path, Accept_Encoding=encoding)
    assert DECODE[encoding](packed) == text
    assert "accept-encoding" in whole["vary"].lower()
    assert small["etag"] != whole["etag"]
    for headers in (whole, small):
        wants = {"Accept_Encoding": headers.get("content-encoding", "identity")}
        known, none = await raw(shop, path, If_None_Match=headers["etag"], **wants)
        assert (known[":status"], none, known["etag"]) == ("304", b"", headers["etag"])
    changed, _ = await raw(shop, path, If_None_Match=whole["etag"], Accept_Encoding=encoding)
    assert changed[":status"] == "200"


async def test_answers_that_may_hold_secrets_are_not_compressed(shop: Client) -> None:
    await shop.add(*({"shop": "a", "code": str(n)} for n in range(20)))
    for path in ("/api/records/items", "/openapi.json", "/console/sign-in", "/console/nothing"):
        headers, body = await raw(shop, path, Accept_Encoding="gzip, br")
        assert "content-encoding" not in headers, path
        assert len(body) > 500 or path == "/console/sign-in"


async def test_the_token_of_forms_differs_from_page_to_page(shop: Client) -> None:
    tokens = set()
    for _ in range(2):
        page = await shop.get("/console/cycles")
        tokens |= set(re.findall(r'name="form_token" value="([^"]+)"', page.text))
    assert len(tokens) == 2


@pytest.mark.parametrize(
    ("header", "encoding"),
    [
        ("", None),
        ("gzip", "gzip"),
        ("gzip, br", "br"),
        ("gzip;q=1.0, br;q=0.5", "gzip"),
        ("br;q=0, gzip;q=0", None),
        ("*", "br"),
        ("identity", None),
        ("gzip;q=x", None),
        ("deflate, *;q=0", None),
    ],
)
def test_the_encoding_that_is_accepted(header: str, encoding: str | None) -> None:
    assert accepted_encoding(header) == encoding
