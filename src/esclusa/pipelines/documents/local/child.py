"""``python -m esclusa.pipelines.documents.local.child``: reads documents from stdin, answers on stdout, until stdin ends.

Each message is its length in 8 bytes and then itself: the class that the document is read as (empty: its own), the document's
bytes; the answer's JSON.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from typing import BinaryIO

from esclusa.pipelines.documents.local.work import work

LENGTH = struct.Struct(">Q")


def serve(source: BinaryIO, target: BinaryIO) -> None:
    while (doc_type := _message(source)) is not None and (content := _message(source)) is not None:
        target.write(message(json.dumps(work(content, doc_type.decode() or None)).encode()))
        target.flush()


def message(body: bytes) -> bytes:
    return LENGTH.pack(len(body)) + body


def _message(source: BinaryIO) -> bytes | None:
    head = source.read(LENGTH.size)
    return source.read(LENGTH.unpack(head)[0]) if len(head) == LENGTH.size else None


if __name__ == "__main__":
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints is no answer
    serve(sys.stdin.buffer, out)
