"""The child process that reads PDFs.

Started as ``python -m esclusa.pipelines.documents.local.worker_process MEGABYTES``. It reads jobs
with their documents from stdin and writes answers to stdout, until stdin ends. Each message is its
length in 8 bytes, then its bytes. A job is JSON, followed by the document: ``{"do": "read",
"doc_type": …, "ocr": languages or null, "words": by page, or null}``, ``{"do":
"find_pictures"}``, ``{"do": "text"}``, ``{"do": "picture", "number": …,
"width": …}`` or ``{"do": "split", "max_pages": …, "max_bytes": …, "overlap": …}``. An answer is
JSON, followed by the text, the picture, the parts, or nothing.
"""

from __future__ import annotations

import json
import os
import resource
import struct
import sys
from typing import Any, BinaryIO

LENGTH = struct.Struct(">Q")
# The exit code of a process that ran out of memory in Python.
OUT_OF_MEMORY = 77


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
            case {"do": "split"}:
                from esclusa.pipelines.documents.local.page_split import split  # noqa: PLC0415

                parts, pages = split(
                    content, job["max_pages"], job["max_bytes"], job.get("overlap", 0)
                )
                sizes = [(len(p.content), p.pages, p.first_page, p.count) for p in parts]
                body = b"".join(part.content for part in parts)
                return {"parts": sizes, "pages": pages}, body
            case {"do": "find_pictures"}:
                from esclusa.pipelines.documents.local.pdf_words import (  # noqa: PLC0415
                    picture_pages,
                )

                return {"pages": picture_pages(content)}, b""
            case {"do": "text"}:
                return {}, read_pdf(content).text.encode()
            case _:
                from esclusa.pipelines.documents.local.picture_words import (  # noqa: PLC0415
                    recognised,
                )
                from esclusa.pipelines.documents.local.statement import (  # noqa: PLC0415
                    read_document,
                )
                from esclusa.pipelines.documents.local.tesseract import (  # noqa: PLC0415
                    recogniser,
                )

                recognise = recogniser(job["ocr"]) if job.get("ocr") else None
                if job.get("words") is not None:
                    recognise = recognised(job["words"])
                return read_document(content, job["doc_type"], recognise), b""
    except Unreadable as error:
        why = error.message
        return {"error": error.error, "message": why.template, "values": why.values}, b""


def message(body: bytes) -> bytes:
    """Return the body with its length before it."""
    return LENGTH.pack(len(body)) + body


def _read_message(source: BinaryIO) -> bytes | None:
    head = source.read(LENGTH.size)
    return source.read(LENGTH.unpack(head)[0]) if len(head) == LENGTH.size else None


def limit_memory(megabytes: int) -> None:
    """Limit the memory of this process, and write no core files.

    A small file can declare a huge page, or expand to gigabytes. A process that needs more memory
    dies, and only the attempt of its document fails.
    """
    for limit, wanted in ((resource.RLIMIT_DATA, megabytes << 20), (resource.RLIMIT_CORE, 0)):
        _, hard = resource.getrlimit(limit)
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(limit, (most, most))


def main(megabytes: int) -> None:
    """Limit the memory, then serve on stdin and stdout."""
    limit_memory(megabytes)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries goes to stderr: stdout carries answers only
    try:
        serve(sys.stdin.buffer, out)
    except MemoryError:
        os._exit(OUT_OF_MEMORY)


if __name__ == "__main__":
    main(int(sys.argv[1]))
