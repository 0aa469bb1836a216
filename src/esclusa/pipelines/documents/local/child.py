"""``python -m esclusa.pipelines.documents.local.child``: takes orders and documents on stdin, answers on stdout, until stdin ends.

Each message is its length in 8 bytes and then itself. An order is JSON: ``{"do": "read", "doc_type": …}``, ``{"do": "text"}`` or
``{"do": "picture", "number": …, "width": …}``; the document's bytes follow. The answer is JSON too, and then the bytes that it is about:
the text, the picture, or none.
"""

from __future__ import annotations

import json
import os
import resource
import struct
import sys
from typing import Any, BinaryIO

LENGTH = struct.Struct(">Q")
MEMORY = 4 << 30
"""Bytes of address space: room for the largest document that the settings allow."""


def serve(source: BinaryIO, target: BinaryIO) -> None:
    while (order := _message(source)) is not None and (content := _message(source)) is not None:
        answer, body = _done(json.loads(order), content)
        target.write(message(json.dumps(answer).encode()) + message(body))
        target.flush()


def _done(order: dict[str, Any], content: bytes) -> tuple[dict[str, Any], bytes]:
    from esclusa.pipelines.documents.local.words import Unreadable, read  # noqa: PLC0415 - who only speaks to a child needs no PDF library

    try:
        match order:
            case {"do": "picture", "number": number, "width": width}:
                from esclusa.pipelines.documents.local.picture import render  # noqa: PLC0415

                return {}, render(content, number, width)
            case {"do": "text"}:
                return {}, read(content).text.encode()
            case _:
                from esclusa.pipelines.documents.local.work import work  # noqa: PLC0415

                return work(content, order["doc_type"]), b""
    except Unreadable as error:
        return {"error": error.error, "message": str(error)}, b""


def message(body: bytes) -> bytes:
    return LENGTH.pack(len(body)) + body


def _message(source: BinaryIO) -> bytes | None:
    head = source.read(LENGTH.size)
    return source.read(LENGTH.unpack(head)[0]) if len(head) == LENGTH.size else None


def bound() -> None:
    """Let this process have no more memory than MEMORY: a small file may say that it is a very large one. Whoever needs more ends, and with
    it only this document's attempt."""
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(
        resource.RLIMIT_AS, (MEMORY if most == resource.RLIM_INFINITY else min(MEMORY, most), most)
    )


if __name__ == "__main__":
    bound()
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints is no answer
    serve(sys.stdin.buffer, out)
