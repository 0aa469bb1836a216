"""Artifacts in a bucket of Supabase Storage, through its HTTP API."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from esclusa.artifacts.bodies import RemoteArtifacts, open_source, regroup, spool, wrong_body
from esclusa.artifacts.paths import clean, clean_prefix
from esclusa.model.errors import ArtifactError, ArtifactExists, ArtifactMissing
from esclusa.ports.artifacts import ArtifactInfo, Body

if TYPE_CHECKING:
    import aiohttp

_BLOCK = 1 << 20
_PAGE = 1000
# Limits of a call: to connect, between two parts of an answer, and for an upload.
#
# An upload gets one more second for each `_SLOWEST_UPLOAD` bytes. Without a limit, a server that
# stops reading would block the upload for ever.
_CONNECT_SECONDS = 10.0
_READ_SECONDS = 60.0
_UPLOAD_SECONDS = 300.0
_SLOWEST_UPLOAD = 256 << 10

_SAFE = re.compile(rb"[^A-Za-z0-9_/.*'()&$=@;:+,?\- ]")
_MISSING = frozenset({"404", "NoSuchKey", "not_found"})
_EXISTS = frozenset({"409", "KeyAlreadyExists", "Duplicate"})


def key_of(path: str) -> str:
    """The key of a path.

    Supabase allows few characters. Every other byte is written as ``!`` and two digits, so that
    different paths have different keys and a prefix of a path gives a prefix of its key.
    """
    return _SAFE.sub(lambda found: b"!%02X" % found[0][0], path.encode()).decode("ascii")


def path_of(key: str) -> str:
    """The path whose key this is."""
    return re.sub(
        rb"!([0-9A-F]{2})", lambda found: bytes([int(found[1], 16)]), key.encode()
    ).decode("utf-8", "replace")


class SupabaseArtifacts(RemoteArtifacts):
    """A bucket. Errors carry the server's own message.

    Supabase puts the real status of an error into the answer's body. A body of unknown size is
    first spooled to a temporary file, so that an upload is sent whole or not at all.
    """

    def __init__(
        self, bucket: str, *, address: str, key: str, public_url: str | None = None
    ) -> None:
        self.url = f"supabase://{bucket}"
        self._bucket = bucket
        self._base = f"{address.rstrip('/').removesuffix('/storage/v1')}/storage/v1"
        self._headers = {"Authorization": f"Bearer {key}", "apikey": key}
        self._public = (public_url or f"{self._base}/object/public/{quote(bucket)}").rstrip("/")
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"SupabaseArtifacts({self.url!r})"

    async def open(self) -> None:
        import aiohttp  # noqa: PLC0415 - slow to import

        timeout = aiohttp.ClientTimeout(
            total=None, connect=_CONNECT_SECONDS, sock_read=_READ_SECONDS
        )
        self._session = aiohttp.ClientSession(
            headers=self._headers, timeout=timeout, trust_env=False
        )
        try:
            where, verb = f"bucket/{quote(self._bucket, safe='')}", f"use the bucket {self._bucket}"
            async with self._call("GET", where, "ESCLUSA_ARTIFACTS", verb) as answer:
                await self._json(answer, "ESCLUSA_ARTIFACTS", verb, "name")
        except ArtifactMissing as error:
            await self.close()
            raise ArtifactError(str(error)) from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def put(
        self, path: str, body: Body, *, content_type: str | None = None, create: bool = False
    ) -> str:
        clean(path)
        kind = content_type or "application/octet-stream"
        match body:
            case bytes() | bytearray():
                await self._send(path, bytes(body), len(body), kind, create)
            case Path():
                await self._send_file(path, body, kind, create)
            case AsyncIterable():
                await self._send_stream(path, body, kind, create)
            case _:
                raise wrong_body(body)
        return self.public_url(path)

    async def get(self, path: str) -> bytes:
        async with self._call("GET", self._place(path), path, "read it") as answer:
            return bytes(await answer.read())

    async def stream(self, path: str, chunk: int = 1 << 20) -> AsyncIterator[bytes]:
        if chunk < 1:
            raise ValueError(f"chunk must be at least 1, not {chunk}")
        async with self._call("GET", self._place(path), path, "read it") as answer:
            async for block in answer.content.iter_chunked(chunk):
                yield block

    async def info(self, path: str) -> ArtifactInfo | None:
        try:
            async with self._call("GET", self._place(path, "info/"), path, "look at it") as answer:
                found = await self._json(answer, path, "look at it", "size")
        except ArtifactMissing:
            return None
        return _described(path, found["size"], found.get("etag"), found.get("last_modified"))

    async def list(self, prefix: str = "") -> AsyncIterator[ArtifactInfo]:
        request: dict[str, Any] = {
            "prefix": key_of(clean_prefix(prefix)),
            "limit": _PAGE,
            "with_delimiter": False,
        }
        found: list[ArtifactInfo] = []
        while True:
            async with self._call(
                "POST",
                f"object/list-v2/{quote(self._bucket, safe='')}",
                prefix or "/",
                "list it",
                json=request,
            ) as answer:
                page = await self._json(answer, prefix or "/", "list it", "objects")
            for each in page["objects"]:
                metadata = each.get("metadata") or {}
                found.append(
                    _described(
                        path_of(each["name"]),
                        metadata.get("size"),
                        metadata.get("eTag"),
                        each.get("updated_at"),
                    )
                )
            if not page.get("hasNext") or not page.get("nextCursor"):
                break
            request["cursor"] = page["nextCursor"]
        for info in sorted(found, key=lambda info: info.path):  # the server sorts by key
            yield info

    async def delete(self, path: str) -> None:
        body = {"prefixes": [key_of(clean(path))]}
        try:
            async with self._call(
                "DELETE", f"object/{quote(self._bucket, safe='')}", path, "delete it", json=body
            ):
                return
        except ArtifactMissing:
            return

    def public_url(self, path: str) -> str:
        return f"{self._public}/{quote(key_of(clean(path)), safe='/')}"

    # Sending

    async def _send_stream(
        self, path: str, body: AsyncIterable[bytes], kind: str, create: bool
    ) -> None:
        async with aclosing(regroup(body, _BLOCK)) as blocks:
            first = await anext(blocks)
            second = await anext(blocks, None)
            if second is None:
                await self._send(path, first, len(first), kind, create)
                return
            with tempfile.NamedTemporaryFile(prefix="esclusa-") as file:
                await spool(path, file, first, second)
                del first, second
                async for block in blocks:
                    await spool(path, file, block)
                await self._send_file(path, Path(file.name), kind, create)

    async def _send_file(self, path: str, source: Path, kind: str, create: bool) -> None:
        with await asyncio.to_thread(open_source, path, source) as file:
            size = file.seek(0, 2)
            file.seek(0)

            async def blocks() -> AsyncIterator[bytes]:
                while block := await asyncio.to_thread(file.read, _BLOCK):
                    yield block

            await self._send(path, blocks() if size else b"", size, kind, create)

    async def _send(
        self, path: str, body: bytes | AsyncIterator[bytes], size: int, kind: str, create: bool
    ) -> None:
        headers = {
            "Content-Type": kind,
            "Content-Length": str(size),
            "Cache-Control": "max-age=3600",
            "x-upsert": "false" if create else "true",
        }
        timeout = _UPLOAD_SECONDS + size / _SLOWEST_UPLOAD
        async with self._call(
            "POST", self._place(path), path, "write it", timeout, data=body, headers=headers
        ) as answer:
            await self._json(answer, path, "write it", "Key")

    def _place(self, path: str, verb: str = "") -> str:
        return f"object/{verb}{quote(self._bucket, safe='')}/{quote(key_of(clean(path)), safe='/')}"

    @asynccontextmanager
    async def _call(
        self,
        method: str,
        where: str,
        path: str,
        verb: str,
        timeout: float | None = None,
        **options: Any,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Make a call of at most ``timeout`` seconds. ArtifactError has the server's message."""
        import aiohttp  # noqa: PLC0415 - loaded by open
        from yarl import URL  # noqa: PLC0415 - comes with aiohttp

        if self._session is None:
            raise ArtifactError(f"{path}: cannot {verb}: {self.url} is not open")
        if timeout is not None:
            options["timeout"] = aiohttp.ClientTimeout(
                total=timeout, connect=_CONNECT_SECONDS, sock_read=_READ_SECONDS
            )
        try:
            address = URL(f"{self._base}/{where}", encoded=True)  # keep its escapes as they are
            async with self._session.request(
                method, address, allow_redirects=False, **options
            ) as answer:
                if answer.status >= 300:
                    raise _refused(path, verb, answer.status, await answer.content.read(4096))
                yield answer
        except (aiohttp.ClientError, TimeoutError) as error:
            slow = isinstance(error, TimeoutError)
            why = "it took too long" if slow else str(error) or type(error).__name__
            raise ArtifactError(f"{path}: cannot {verb}: {self._base}: {why[:200]}") from None

    async def _json(
        self, answer: aiohttp.ClientResponse, path: str, verb: str, required: str
    ) -> dict[str, Any]:
        """The JSON answer of a successful call, which must contain ``required``.

        A page of a gateway or a login may come with any status. It does not prove that the call
        succeeded.
        """
        try:
            found: dict[str, Any] = json.loads(await answer.read())
            _ = found[required]
        except (ValueError, KeyError, TypeError):
            raise ArtifactError(
                f"{path}: cannot {verb}: the answer of {self._base} is not from Supabase;"
                " check SUPABASE_URL"
            ) from None
        return found


def _refused(path: str, verb: str, status: int, body: bytes) -> ArtifactError:
    try:
        found = json.loads(body)
        codes = {str(found.get(name)) for name in ("statusCode", "code", "error")}
        names = ("statusCode", "code", "error", "message")
        words = [str(found[name]) for name in names if found.get(name)]
    except (ValueError, AttributeError):
        codes, words = set(), [f"HTTP {status}"]
    text = f"{path}: cannot {verb}: {': '.join(dict.fromkeys(words)) or f'HTTP {status}'}"[:500]
    if codes & _EXISTS:
        return ArtifactExists(f"{path}: an object of that name exists already")
    bucket = "NoSuchBucket" in codes or "Bucket not found" in codes
    return ArtifactMissing(text) if codes & _MISSING and not bucket else ArtifactError(text)


def _described(path: str, size: Any, etag: Any, modified: Any) -> ArtifactInfo:
    when = datetime.fromisoformat(modified) if isinstance(modified, str) else None
    return ArtifactInfo(path, int(size or 0), str(etag or f"{modified}-{size}").strip('"'), when)
