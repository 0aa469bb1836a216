"""The body of a response that is not trusted: decompressed, limited, in memory or in a file."""

from __future__ import annotations

import hashlib
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from esclusa.engine.threads import call_in_thread
from esclusa.model.errors import ArtifactError, EsclusaError, Failure

# How many bytes at the beginning of a body `inspect` sees.
HEAD = 1024

_BLOCK = 1 << 20
# Bytes that are hashed in one call. Python releases its lock for 2,048 and more; to get it back
# beside the threads that write files takes longer than the calls.
_HASHED_AT_ONCE = 2047


class TooLarge(EsclusaError):
    """The body is larger than the limit."""

    error_type = "too_large"


class BadResponse(Failure):
    """There was no complete response: cut off, too many redirects, any 4xx or 5xx.

    ``status``: the response's, if there was one. ``after``: the seconds of its ``Retry-After``.
    """

    def __init__(
        self, message: str, *, status: int | None = None, after: float | None = None
    ) -> None:
        self.status = status
        super().__init__(message, type="http_error", after=after)


@dataclass
class Download:
    """A complete body: its bytes, or the temporary file with them while the download is open.

    ``sha256``: of the body, in hexadecimal.
    """

    size: int = 0
    sha256: str = ""
    head: bytes = b""
    redirects: int = 0
    body: bytes | Path = b""


class Decompressor:
    """Decompresses in small parts, so that a bomb reaches the limit before it fills the memory."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(47)  # detects gzip and zlib

    def parts(self, chunk: bytes) -> Iterator[bytes]:
        try:
            while chunk:
                if self._member.eof:  # a gzip body may have several members
                    self._member = zlib.decompressobj(47)
                if part := self._member.decompress(chunk, 1 << 16):
                    yield part
                member = self._member
                chunk = member.unused_data if member.eof else member.unconsumed_tail
        except zlib.error as error:
            raise BadResponse(f"the body cannot be decompressed: {error}") from None

    def end(self) -> None:
        if not self._member.eof:
            raise BadResponse("the compressed body was cut off")


def decompressor_for(encoding: str) -> Decompressor | None:
    """Return what decompresses a body of this encoding; None if it is not compressed."""
    match encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip" | "deflate":
            return Decompressor()
        case other:
            raise BadResponse(f"the body is compressed with {other!r:.20}, which was not requested")


@dataclass
class Spool:
    """Keeps a small body in memory and writes a large one to a file, block by block."""

    in_memory: int
    limit: int
    inspect: Callable[[bytes], object] | None
    download: Download = field(default_factory=Download)
    _parts: list[bytes] = field(default_factory=list)
    _pending: int = 0
    _file: BinaryIO | None = None
    _path: Path | None = None
    _digest: Any = field(default_factory=hashlib.sha256)

    def add(self, part: bytes) -> bool:
        """Add the next part; return whether ``flush`` is needed."""
        done = self.download
        before = done.size
        done.size += len(part)
        if done.size > self.limit:
            raise TooLarge(f"the body has more than {self.limit:,} bytes")
        if before < HEAD:
            done.head += part[: HEAD - before]
            if done.size >= HEAD and self.inspect is not None:
                self.inspect(done.head)
        view, update = memoryview(part), self._digest.update
        for start in range(0, len(part), _HASHED_AT_ONCE):
            update(view[start : start + _HASHED_AT_ONCE])
        self._parts.append(part)
        self._pending += len(part)
        return self._pending >= _BLOCK and done.size > self.in_memory

    async def end(self) -> None:
        done = self.download
        if done.size < HEAD and self.inspect is not None:
            self.inspect(done.head)
        done.sha256 = self._digest.hexdigest()
        if self._file is None:
            done.body = b"".join(self._parts)
            return
        await self.flush()
        assert self._path is not None
        done.body = self._path

    async def flush(self) -> None:
        parts, self._parts, self._pending = self._parts, [], 0
        try:  # wait to the end: a file made after `clear` would stay
            await call_in_thread(None, lambda: self._write(parts))
        except OSError as error:
            raise ArtifactError(
                f"the body cannot be written to {tempfile.gettempdir()}: {error.strerror}"
            ) from error

    def _write(self, parts: list[bytes]) -> None:
        if self._file is None:
            number, name = tempfile.mkstemp(prefix="esclusa-")
            self._file, self._path = os.fdopen(number, "wb"), Path(name)
        self._file.writelines(parts)
        self._file.flush()

    def clear(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # on a full disk, closing fails as well
                self._file.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
