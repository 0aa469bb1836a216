"""The child process that reads PDFs.

Started as ``python -m esclusa.pipelines.documents.local.worker_process``. It reads jobs with their
documents from stdin and writes answers to stdout, until stdin ends. Each message is its length in 8
bytes, then its bytes. A job is JSON, followed by the document: ``{"do": "read", "doc_type": …}``,
``{"do": "text"}`` or ``{"do": "picture", "number": …, "width": …}``. An answer is JSON, followed by
the text, the picture, or nothing.
"""

from __future__ import annotations

import json
import os
import resource
import struct
import sys
from typing import Any, BinaryIO

LENGTH = struct.Struct(">Q")
# Bytes of address space: enough for the largest document that the settings allow.
MEMORY = 4 << 30


def serve(source: BinaryIO, target: BinaryIO) -> None:
    """Answer jobs until the source ends."""
    while (job := _read_message(source)) is not None:
        content = _read_message(source)
        if content is None:
            return
        answer, body = _run(json.loads(job), content)
        target.write(message(json.dumps(answer).encode()) + message(body))
        target.flush()


def _run(job: dict[str, Any], content: bytes) -> tuple[dict[str, Any], bytes]:
    # The parent imports this module too, and needs no PDF library.
    from esclusa.pipelines.documents.local.pdf_words import Unreadable, read_pdf  # noqa: PLC0415

    try:
        match job:
            case {"do": "picture", "number": number, "width": width}:
                from esclusa.pipelines.documents.local.page_image import render  # noqa: PLC0415

                return {}, render(content, number, width)
            case {"do": "text"}:
                return {}, read_pdf(content).text.encode()
            case _:
                from esclusa.pipelines.documents.local.statement import (  # noqa: PLC0415
                    read_document,
                )

                return read_document(content, job["doc_type"]), b""
    except Unreadable as error:
        return {"error": error.error, "message": str(error)}, b""


def message(body: bytes) -> bytes:
    """Return the body with its length before it."""
    return LENGTH.pack(len(body)) + body


def _read_message(source: BinaryIO) -> bytes | None:
    head = source.read(LENGTH.size)
    return source.read(LENGTH.unpack(head)[0]) if len(head) == LENGTH.size else None


def limit_memory() -> None:
    """Limit the address space of this process to MEMORY.

    A small file can declare a huge page. A process that needs more memory dies, and only the
    attempt of its document fails.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    soft = MEMORY if hard == resource.RLIM_INFINITY else min(MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


if __name__ == "__main__":
    limit_memory()
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries goes to stderr: stdout carries answers only
    serve(sys.stdin.buffer, out)
