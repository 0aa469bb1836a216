"""Artifacts in a bucket of Google Cloud Storage."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterable, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar
from urllib.parse import quote

from esclusa.artifacts.bodies import BucketArtifacts, open_source, regroup, wrong_body
from esclusa.artifacts.paths import clean_prefix
from esclusa.engine.threads import call_in_thread
from esclusa.model.errors import ArtifactError, ArtifactMissing
from esclusa.ports.artifacts import ArtifactInfo, Body

if TYPE_CHECKING:
    from esclusa.artifacts.gcs_bucket import GcsBucket, GcsObject

T = TypeVar("T")

# Bytes in one request of a longer upload, or in one ranged read.
#
# Cloud Storage requires a multiple of 256 KiB.
PART = 4 << 20


class GcsArtifacts(BucketArtifacts):
    """A bucket, or a prefix in one. ``info().version`` is the object's generation.

    A body larger than a part is sent part by part in an upload session, is never held whole, and
    becomes visible with its last part. A create-only put is safe against every other writer (a
    precondition on the generation), even if the answer to it is lost. Credentials come from the
    environment (a service account on Google Cloud). ``endpoint`` is the address of an emulator,
    which needs no credentials. Google's client blocks, so it runs in ``threads`` threads; it is
    loaded when the store is opened.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str | None = None,
        public_url: str | None = None,
        threads: int = 16,
    ) -> None:
        address = (endpoint or "https://storage.googleapis.com").rstrip("/")
        super().__init__("gs", bucket, prefix, public_url, f"{address}/{quote(bucket)}")
        self._name = bucket
        self._endpoint = endpoint
        self._thread_count = threads
        self._threads: ThreadPoolExecutor | None = None
        self._opened: GcsBucket | None = None

    async def open(self) -> None:
        if self._opened is not None:
            return
        self._threads = ThreadPoolExecutor(self._thread_count, "gcs")
        try:
            self._opened = await self._call(self._connect)
            await self._call(self._bucket.probe, self._prefix)
        except BaseException:
            await self.close()
            raise

    def _connect(self) -> GcsBucket:
        try:
            from esclusa.artifacts.gcs_bucket import (  # noqa: PLC0415 - an extra, slow to import
                GcsBucket,
            )
        except ImportError as error:
            raise ArtifactError(
                f"ESCLUSA_ARTIFACTS: {self.url} needs the extra esclusa[google] ({error})"
            ) from error
        return GcsBucket(self._name, endpoint=self._endpoint, threads=self._thread_count)

    async def close(self) -> None:
        opened, self._opened = self._opened, None
        threads, self._threads = self._threads, None
        if threads is not None:
            await asyncio.to_thread(threads.shutdown, wait=True)
        if opened is not None:
            opened.close()

    async def put(
        self, path: str, body: Body, *, content_type: str | None = None, create: bool = False
    ) -> str:
        key = self._key(path)
        match body:
            case bytes() | bytearray():
                await self._put_blocks(path, key, _slices(bytes(body)), content_type, create)
            case Path():
                with await asyncio.to_thread(open_source, path, body) as file:
                    await self._put_blocks(path, key, self._blocks(file), content_type, create)
            case AsyncIterable():
                await self._put_blocks(path, key, body, content_type, create)
            case _:
                raise wrong_body(body)
        return self.public_url(path)

    async def get(self, path: str) -> bytes:
        return await self._call(lambda: self._bucket.read(path, self._key(path)))

    async def stream(self, path: str, chunk: int = 1 << 20) -> AsyncIterator[bytes]:
        if chunk < 1:
            raise ValueError(f"chunk must be at least 1, not {chunk}")
        key = self._key(path)
        head = await self._call(self._bucket.find, path, key)
        if head is None:
            raise ArtifactMissing(f"{path}: there is no such object in {self.url}")
        import google_crc32c  # noqa: PLC0415 - an extra, loaded with the client

        checksum = google_crc32c.Checksum()
        # Read ranges of one generation: a slow reader blocks no connection and never mixes two.
        for start in range(0, head.size, PART):
            end = min(start + PART, head.size)
            block = await self._call(
                partial(
                    self._bucket.read, path, key, start=start, end=end, generation=head.generation
                )
            )
            checksum.update(block)
            for offset in range(0, len(block), chunk):
                yield block[offset : offset + chunk]
        if head.crc32c is not None and base64.b64encode(checksum.digest()).decode() != head.crc32c:
            raise ArtifactError(
                f"{path}: the content read differs from the content written (checksum)"
            )

    async def info(self, path: str) -> ArtifactInfo | None:
        found = await self._call(self._bucket.find, path, self._key(path))
        return None if found is None else self._describe(found)

    async def list(self, prefix: str = "") -> AsyncIterator[ArtifactInfo]:
        next_page = self._bucket.pages(self._prefix + clean_prefix(prefix))
        while (page := await self._call(next_page)) is not None:
            for found in page:
                if not found.key.endswith("/"):  # a folder made in Google's console
                    yield self._describe(found)

    async def delete(self, path: str) -> None:
        await self._call(self._bucket.delete, path, self._key(path))

    @property
    def _bucket(self) -> GcsBucket:
        if self._opened is None:
            raise ArtifactError(f"{self.url} is not open")
        return self._opened

    async def _put_blocks(
        self,
        path: str,
        key: str,
        body: AsyncIterable[bytes],
        content_type: str | None,
        create: bool,
    ) -> None:
        async with aclosing(regroup(body, PART)) as blocks:
            first = await anext(blocks)
            second = await anext(blocks, None)
            if second is None:
                await self._call(
                    partial(self._bucket.send, path, key, first, content_type, create=create)
                )
                return
            upload = self._bucket.upload(path, key, content_type, create=create)
            try:
                await self._call(upload.write, first)
                del first
                await self._call(upload.write, second)
                del second
                async for block in blocks:
                    await self._call(upload.write, block)
                    del block
            except BaseException:
                await asyncio.shield(self._call(upload.abandon))
                raise
            await self._call(upload.close)

    async def _blocks(self, file: IO[bytes]) -> AsyncIterator[bytes]:
        while block := await self._call(file.read, PART):
            yield block

    async def _call(self, function: Callable[..., T], *arguments: object) -> T:
        if self._threads is None:
            raise ArtifactError(f"{self.url} is not open")
        return await call_in_thread(self._threads, partial(function, *arguments))

    def _describe(self, found: GcsObject) -> ArtifactInfo:
        return ArtifactInfo(
            found.key.removeprefix(self._prefix), found.size, str(found.generation), found.created
        )


async def _slices(body: bytes) -> AsyncIterator[bytes]:
    if len(body) <= PART:
        yield body
        return
    for start in range(0, len(body), PART):
        yield body[start : start + PART]
