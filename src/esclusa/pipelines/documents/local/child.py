"""``python -m esclusa.pipelines.documents.local.child``: reads documents from stdin, answers on stdout, until stdin ends.

Each message is its length in 8 bytes and then itself: the document's bytes, the answer's JSON.
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
    while len(head := source.read(LENGTH.size)) == LENGTH.size:
        content = source.read(LENGTH.unpack(head)[0])
        answer = json.dumps(work(content)).encode()
        target.write(LENGTH.pack(len(answer)) + answer)
        target.flush()


if __name__ == "__main__":
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints is no answer
    serve(sys.stdin.buffer, out)
