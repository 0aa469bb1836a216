"""PDFs of a few kilobytes that expand to hundreds of megabytes when they are read."""

from __future__ import annotations

import struct
import zlib

_PAGE = (
    b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R"
    b"/Resources<</Font<</F1 5 0 R>>>>>>"
)
_FONT = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"


def page_bomb(megabytes: int) -> bytes:
    """A page of so many megabytes of operators."""
    text = b"BT /F1 9 Tf 10 10 Td (a) Tj ET\n" * (megabytes * 1_000_000 // 31)
    objects = {
        1: b"<</Type/Catalog/Pages 2 0 R>>",
        2: b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        3: _PAGE,
        4: _stream(text, b""),
        5: _FONT,
    }
    return _file(objects)[0] + b"trailer<</Size 6/Root 1 0 R>>\n%%EOF"


def tree_bomb(megabytes: int) -> bytes:
    """A page tree in an object stream of so many megabytes: counting the pages reads it."""
    tree = b"2 0 " + b"<</Type/Pages/Kids[3 0 R]/Count 1>>" + b" " * (megabytes * 1_000_000)
    objects = {
        1: b"<</Type/Catalog/Pages 2 0 R>>",
        3: _PAGE,
        4: _stream(b"", b""),
        5: _FONT,
        6: _stream(tree, b"/Type/ObjStm/N 1/First 4"),
    }
    out, offsets = _file(objects)
    rows = [(0, 0, 0), (1, offsets[1], 0), (2, 6, 0)]
    rows += [(1, offsets[number], 0) for number in (3, 4, 5, 6)] + [(1, len(out), 0)]
    table = b"".join(struct.pack(">BIH", *row) for row in rows)
    head = b"<</Type/XRef/W[1 4 2]/Size 8/Root 1 0 R/Length %d>>" % len(table)
    return out + b"7 0 obj\n%sstream\n%s\nendstream\nendobj\nstartxref\n%d\n%%%%EOF" % (
        head,
        table,
        len(out),
    )


def _stream(content: bytes, entries: bytes) -> bytes:
    """Compress twice: the second time shrinks the zeros that the first one leaves."""
    packed = zlib.compress(zlib.compress(content, 9), 9)
    head = b"<<%s/Length %d/Filter[/FlateDecode/FlateDecode]>>" % (entries, len(packed))
    return head + b"stream\n%s\nendstream" % packed


def _file(objects: dict[int, bytes]) -> tuple[bytes, dict[int, int]]:
    """The objects of a file, and where each begins."""
    out, offsets = b"%PDF-1.5\n", {}
    for number, body in objects.items():
        offsets[number] = len(out)
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    return out, offsets
