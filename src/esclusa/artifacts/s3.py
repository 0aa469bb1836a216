"""Artifacts in a bucket of Amazon S3, or of a server with the same protocol."""

from __future__ import annotations

import asyncio
import mmap
import re
import tempfile
from collections.abc import AsyncIterable, AsyncIterator, Awaitable
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, TypeAlias, TypeVar
from urllib.parse import quote, urlsplit

from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from esclusa.artifacts.bodies import (
    BucketArtifacts,
    UploadStream,
    open_source,
    regroup,
    spool,
    wrong_body,
)
from esclusa.artifacts.paths import clean_prefix
from esclusa.model.errors import ArtifactError, ArtifactExists, ArtifactMissing
from esclusa.ports.artifacts import ArtifactInfo, Body

T = TypeVar("T")
# Blocks to send. The receiver empties the list, so that no sent block stays in memory.
Blocks: TypeAlias = list[bytes]

# Bytes in one part of an upload or one ranged read: the minimum of S3.
#
# With at most 10,000 parts, an object may have 50 GB.
PART = 5 << 20

_PARALLEL_PARTS = 2
_CODE = re.compile(r"<Code>([^<]{1,80})</Code>(?:\s*<Message>([^<]{1,300}))?")
_STATUS = re.compile(r"status code: (\d{3}[^:\n]{0,40})")


class S3Artifacts(BucketArtifacts):
    """A bucket, or a prefix in one. A large body is sent part by part and never held whole.

    A create-only put is one conditional request, which S3 takes up to 5 GB; a stream is first
    spooled to a temporary file. Without keys, those of the environment or the instance are used.
    ``ordered`` says whether the server lists in order of path, as Amazon's does; None assumes it
    only if no other endpoint is set. Otherwise lists are sorted in memory.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        region: str | None = None,
        endpoint: str | None = None,
        access_key: str | None = None,
        secret_key: str | None = None,
        session_token: str | None = None,
        public_url: str | None = None,
        ordered: bool | None = None,
    ) -> None:
        super().__init__("s3", bucket, prefix, public_url, _address(bucket, endpoint, region))
        self._bucket = bucket
        self._ordered = endpoint is None if ordered is None else ordered
        self._config: dict[str, Any] = {
            name: value
            for name, value in {
                "access_key_id": access_key,
                "secret_access_key": secret_key,
                "session_token": session_token,
                "region": region,
                "endpoint": endpoint,
            }.items()
            if value
        }
        self._insecure = (endpoint or "").startswith("http://")
        self._store = self._connect(300.0)

    async def open(self) -> None:
        try:
            async for _ in self._store.list(self._prefix or None, chunk_size=1):
                break
        except (BaseError, OSError, ValueError) as error:
            # Missing keys are the most frequent cause, and then the error does not come from S3 but
            # from the instance's credential service.
            unset = "; AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set"
            hint = "" if "access_key_id" in self._config else unset
            raise ArtifactError(
                f"ESCLUSA_ARTIFACTS: the bucket {self._bucket} cannot be used:"
                f" {_reason(error)}{hint}"
            ) from None

    async def close(self) -> None:
        return

    async def put(
        self, path: str, body: Body, *, content_type: str | None = None, create: bool = False
    ) -> str:
        key = self._key(path)
        attributes = {"Content-Type": content_type} if content_type else None
        match body:
            case bytes() | bytearray():
                await self._put_buffer(path, key, bytes(body), attributes, create)
            case Path():
                await self._put_file(path, key, body, attributes, create)
            case AsyncIterable():
                await self._put_stream(path, key, body, attributes, create)
            case _:
                raise wrong_body(body)
        return self.public_url(path)

    async def get(self, path: str) -> bytes:
        return await self._read(path, self._key(path))

    async def _read(self, path: str, key: str, options: Any = None) -> bytes:
        async def read() -> bytes:
            found = await self._store.get_async(key, options=options)
            return bytes(await found.bytes_async())

        return await self._request(path, "read", read())

    async def stream(self, path: str, chunk: int = 1 << 20) -> AsyncIterator[bytes]:
        if chunk < 1:
            raise ValueError(f"chunk must be at least 1, not {chunk}")
        key = self._key(path)
        head = await self._request(path, "read", self._store.head_async(key))
        # Read ranges of one version: a slow reader blocks no connection and never mixes two
        # versions.
        for start in range(0, head["size"], PART):
            options: Any = {"range": (start, min(start + PART, head["size"]))}
            if head["e_tag"]:
                options["if_match"] = head["e_tag"]
            block = await self._read(path, key, options)
            for offset in range(0, len(block), chunk):
                yield block[offset : offset + chunk]

    async def info(self, path: str) -> ArtifactInfo | None:
        try:
            found = await self._request(path, "look at", self._store.head_async(self._key(path)))
        except ArtifactMissing:
            return None
        return self._describe(found)

    async def list(self, prefix: str = "") -> AsyncIterator[ArtifactInfo]:
        wanted = self._prefix + clean_prefix(prefix)
        folder = wanted.rpartition("/")[0]
        # The server lists whole folders, but a prefix may end in the middle of a name.
        after = (
            wanted[:-1]
            if self._ordered and not wanted.endswith("/") and wanted[:-1].startswith(folder + "/")
            else None
        )
        found: list[ArtifactInfo] = []
        try:
            async for page in self._store.list(
                folder or None, offset=after or None, chunk_size=1000
            ):
                for meta in page:
                    if not meta["path"].startswith(wanted):
                        if self._ordered and meta["path"] > wanted:
                            return
                        continue
                    if self._ordered:
                        yield self._describe(meta)
                    else:
                        found.append(self._describe(meta))
        except (BaseError, OSError, ValueError) as error:
            raise ArtifactError(f"cannot list {self.url}/{prefix}: {_reason(error)}") from None
        for info in sorted(found, key=lambda info: info.path):
            yield info

    async def delete(self, path: str) -> None:
        try:
            await self._request(path, "delete", self._store.delete_async(self._key(path)))
        except ArtifactMissing:
            return

    def _connect(self, timeout: float) -> S3Store:
        """A client whose requests may take ``timeout`` seconds each, answer included."""
        return S3Store(
            self._bucket,
            **self._config,
            client_options={
                "allow_http": self._insecure,
                "connect_timeout": timedelta(seconds=5),
                "timeout": timedelta(seconds=timeout),
            },
            retry_config={
                "max_retries": 3,
                "retry_timeout": timedelta(seconds=30),
                "backoff": {
                    "init_backoff": timedelta(milliseconds=100),
                    "max_backoff": timedelta(seconds=3),
                    "base": 2,
                },
            },
        )

    async def _put_buffer(
        self, path: str, key: str, body: Any, attributes: Any, create: bool
    ) -> None:
        if create:
            size = len(body)
            store = self._store if size <= PART else self._connect(300.0 + size / (256 << 10))
            sent = store.put_async(key, body, attributes=attributes, mode="create")
        else:
            sent = self._store.put_async(
                key, body, attributes=attributes, chunk_size=PART, max_concurrency=_PARALLEL_PARTS
            )
        await self._request(path, "write", sent, writing=True)

    async def _put_file(
        self, path: str, key: str, source: Path, attributes: Any, create: bool
    ) -> None:
        with await asyncio.to_thread(open_source, path, source) as file:
            if create:
                await self._put_mapped(path, key, file, attributes)
            else:
                await self._put_stream(path, key, _blocks(file), attributes, create=False)

    async def _put_stream(
        self, path: str, key: str, body: AsyncIterable[bytes], attributes: Any, create: bool
    ) -> None:
        async with aclosing(regroup(body, PART)) as blocks:
            head = [await anext(blocks)]
            async for second in blocks:
                head.append(second)
                del second
                break
            if len(head) == 1:
                await self._put_buffer(path, key, head[0], attributes, create)
            elif create:
                await self._put_spooled(path, key, head, blocks, attributes)
            else:
                await self._put_parts(path, key, head, blocks, attributes)

    async def _put_parts(
        self, path: str, key: str, head: Blocks, rest: AsyncIterator[bytes], attributes: Any
    ) -> None:
        stream = UploadStream(head, rest)
        sent = self._store.put_async(
            key,
            stream,
            attributes=attributes,
            use_multipart=True,
            chunk_size=PART,
            max_concurrency=_PARALLEL_PARTS,
        )
        await stream.run(self._request(path, "write", sent, writing=True))

    async def _put_spooled(
        self, path: str, key: str, head: Blocks, rest: AsyncIterator[bytes], attributes: Any
    ) -> None:
        with tempfile.TemporaryFile(prefix="esclusa-") as file:
            await spool(path, file, *head)
            head.clear()
            async for block in rest:
                await spool(path, file, block)
            await self._put_mapped(path, key, file, attributes)

    async def _put_mapped(self, path: str, key: str, file: IO[bytes], attributes: Any) -> None:
        """Send the file in one conditional request, which is the only create-only write of S3."""
        file.seek(0, 2)
        if file.tell() == 0:
            await self._put_buffer(path, key, b"", attributes, create=True)
            return
        # Not closed here: the library may use its pages a moment longer than the call.
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        await self._put_buffer(path, key, mapped, attributes, create=True)

    async def _request(
        self, path: str, verb: str, call: Awaitable[T], *, writing: bool = False
    ) -> T:
        try:
            return await call
        except AlreadyExistsError:
            raise ArtifactExists(f"{path}: an object of that name exists already") from None
        except FileNotFoundError as error:
            if writing or "NoSuchBucket" in str(error):
                raise ArtifactError(f"{path}: cannot {verb} it: {_reason(error)}") from None
            raise ArtifactMissing(f"{path}: there is no such object in {self.url}") from None
        except (BaseError, OSError, ValueError) as error:
            raise ArtifactError(f"{path}: cannot {verb} it: {_reason(error)}") from None

    def _describe(self, meta: Any) -> ArtifactInfo:
        version = (
            meta["version"]
            or (meta["e_tag"] or "").strip('"')
            or f"{meta['last_modified']:%Y%m%d%H%M%S}-{meta['size']}"
        )
        return ArtifactInfo(
            meta["path"].removeprefix(self._prefix), meta["size"], version, meta["last_modified"]
        )


async def _blocks(file: IO[bytes]) -> AsyncIterator[bytes]:
    while block := await asyncio.to_thread(file.read, PART):
        yield block


def _address(bucket: str, endpoint: str | None, region: str | None) -> str:
    if endpoint:
        return f"{endpoint.rstrip('/')}/{quote(bucket)}"
    return f"https://{bucket}.s3.{region or 'us-east-1'}.amazonaws.com"


def _reason(error: Exception) -> str:
    """The server's reason in one line. The library's own text is a page long."""
    text = str(error)
    status, code = _STATUS.search(text), _CODE.search(text)
    if status or code:
        parts = [status[1].strip()] if status else []
        if code:
            parts.append(": ".join(part.strip() for part in code.groups() if part))
        return ", ".join(parts)
    line = text.split("\n", 1)[0].strip()
    url = re.search(r"https?://[^\s/]+", line)
    why = line.rpartition(" - ")[2].strip() or type(error).__name__
    if not url:
        return why[:300]
    return f"{why} ({urlsplit(url[0]).hostname}:{urlsplit(url[0]).port or 443})"
