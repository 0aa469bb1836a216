"""What the stores share: bodies in blocks, never held whole, and the bases of remote stores."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeVar
from urllib.parse import quote

from esclusa.artifacts.paths import MAX_PATH, clean
from esclusa.model.errors import ArtifactError
from esclusa.ports.artifacts import Artifacts, Body, KeptArtifact

T = TypeVar("T")

# Bytes in a key of an object store.
_MAX_KEY = 1024


class RemoteArtifacts(Artifacts):
    """A store whose ``put`` returns only after the object is durable, so ``sync`` has no work."""

    async def keep(
        self, path: str, body: Body, *, content_type: str | None = None, create: bool = False
    ) -> KeptArtifact:
        return KeptArtifact(await self.put(path, body, content_type=content_type, create=create))

    async def sync(self, kept: Sequence[KeptArtifact]) -> None:
        """Do nothing: ``keep`` has waited for the store."""


class BucketArtifacts(RemoteArtifacts):
    """A bucket, or a prefix in one. ``address``: where readers find it without a public URL."""

    def __init__(
        self, scheme: str, bucket: str, prefix: str, public_url: str | None, address: str
    ) -> None:
        self._prefix = f"{clean(prefix.strip('/'))}/" if prefix.strip("/") else ""
        if len(self._prefix.encode()) > _MAX_KEY - MAX_PATH:
            raise ArtifactError(
                f"the prefix {prefix!r} is longer than {_MAX_KEY - MAX_PATH - 1} bytes;"
                " keys would not fit"
            )
        self.url = f"{scheme}://{bucket}/{self._prefix}".rstrip("/")
        self._public = (public_url or f"{address}/{quote(self._prefix)}").rstrip("/")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def public_url(self, path: str) -> str:
        return f"{self._public}/{quote(clean(path), safe='/')}"

    def _key(self, path: str) -> str:
        return self._prefix + clean(path)


async def regroup(body: AsyncIterable[bytes], size: int) -> AsyncGenerator[bytes, None]:
    """Yield the same bytes in blocks of at least ``size``, except the last block.

    An empty body is one empty block. The body is closed at the end in any case, so that a download
    behind it releases its connection.
    """
    held: list[bytes] = []
    total = 0
    yielded = False
    try:
        async for chunk in body:
            if not isinstance(chunk, bytes | bytearray | memoryview):
                raise TypeError(f"a body yields bytes, not {type(chunk).__name__}")
            held.append(bytes(chunk))
            total += len(held[-1])
            if total >= size:
                block = held[0] if len(held) == 1 else b"".join(held)
                held.clear()
                total = 0
                yielded = True
                yield block
                del block
        if held or not yielded:
            yield b"".join(held)
    finally:
        close = getattr(body, "aclose", None)
        if close is not None:
            with suppress(RuntimeError):  # it still runs in a task that was just cancelled
                await close()


def wrong_body(body: object) -> TypeError:
    """The error for a body of a type that no store takes."""
    return TypeError(
        "an artifact's body is bytes, a Path or an async iterable of bytes,"
        f" not {type(body).__name__}"
    )


def open_source(path: str, source: Path) -> BinaryIO:
    """Open the file that is the body of an artifact; ArtifactError if it cannot be read. Blocks."""
    try:
        return source.open("rb")
    except OSError as error:
        raise ArtifactError(
            f"{path}: its body cannot be read from {source}: {error.strerror}"
        ) from error


async def spool(path: str, file: IO[bytes], *blocks: bytes) -> None:
    """Append blocks of an artifact's body to a temporary file."""
    try:
        await asyncio.to_thread(file.writelines, blocks)
        await asyncio.to_thread(file.flush)
    except OSError as error:
        raise ArtifactError(
            f"{path}: its body cannot be spooled to {tempfile.gettempdir()}: {error.strerror}"
        ) from error


class UploadStream:
    """An async iterator for a library that reads the body of an upload at its own pace.

    It yields the blocks of ``head``, which it empties, and of ``rest``, one block ahead. If the
    source fails or the caller is cancelled, the library gets an error from the iterator, and so
    aborts the upload.
    """

    def __init__(self, head: list[bytes], rest: AsyncIterator[bytes]) -> None:
        self._head = head
        self._rest = rest
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=1)
        self._error: BaseException | None = None

    def __aiter__(self) -> UploadStream:
        return self

    async def __anext__(self) -> bytes:
        block = await self._queue.get()
        if block is None:
            self._queue.put_nowait(None)
            if self._error is not None:
                raise _SourceFailed
            raise StopAsyncIteration
        return block

    async def run(self, upload: Coroutine[Any, Any, T]) -> T:
        """Run the upload to its end. If the source broke it, raise the source's own error."""
        uploading = asyncio.ensure_future(upload)
        reading = asyncio.ensure_future(self._read())
        try:
            return await asyncio.shield(uploading)
        except asyncio.CancelledError:
            await _stop(reading)
            await asyncio.wait([uploading])
            if not uploading.cancelled():
                uploading.exception()  # retrieved: the caller gets the cancellation
            raise
        except Exception:
            await _stop(reading)
            if isinstance(self._error, Exception):
                raise self._error from None
            raise
        finally:
            await _stop(reading)

    async def _read(self) -> None:
        try:
            while self._head:
                await self._queue.put(self._head.pop(0))
            async for block in self._rest:
                await self._queue.put(block)
                del block
            await self._queue.put(None)
        except BaseException as error:
            self._error = error
            while not self._queue.empty():
                self._queue.get_nowait()
            self._queue.put_nowait(None)
            if not isinstance(error, Exception):
                raise


class _SourceFailed(Exception):
    """The source of the body failed; ``run`` raises the cause."""


async def _stop(task: asyncio.Task[None]) -> None:
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
