"""Artifacts in a bucket of Supabase Storage, by its HTTP interface."""

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

from esclusa.artifacts.bodies import regroup, wrong_body
from esclusa.artifacts.paths import clean, clean_prefix
from esclusa.artifacts.sent import SentArtifacts
from esclusa.model.errors import ArtifactError, ArtifactExists, ArtifactMissing
from esclusa.ports.artifacts import ArtifactInfo, Body

if TYPE_CHECKING:
    import aiohttp

_BLOCK = 1 << 20
_PAGE = 1000
_CONNECT = 10.0
_SILENCE = 60.0
_PATIENCE = 300.0
_SLOWEST = 256 << 10
"""Seconds for a connection, between two parts of an answer, and for an upload, and the bytes that each second more of it is for: a
server that stops reading says nothing, and would be waited for in vain."""

_SAFE = re.compile(rb"[^A-Za-z0-9_/.*'()&$=@;:+,?\- ]")
_MISSING = frozenset({"404", "NoSuchKey", "not_found"})
_EXISTS = frozenset({"409", "KeyAlreadyExists", "Duplicate"})


def key_of(path: str) -> str:
    """The key of a path. Supabase takes few characters; the others are written as ``!`` and two digits for each byte, so that
    different paths have different keys and the beginning of a path is the beginning of its key."""
    return _SAFE.sub(lambda found: b"!%02X" % found[0][0], path.encode()).decode("ascii")


def path_of(key: str) -> str:
    """The path whose key this is."""
    return re.sub(
        rb"!([0-9A-F]{2})", lambda found: bytes([int(found[1], 16)]), key.encode()
    ).decode("utf-8", "replace")


class SupabaseArtifacts(SentArtifacts):
    """A bucket. What the server refuses is told in its own words: its real status stands in the body, not in the answer's head.

    A body whose size is not known is spooled to a temporary file first, so that an upload is sent whole or not at all.
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
        import aiohttp  # noqa: PLC0415 - heavy, and only needed where something is called

        timeout = aiohttp.ClientTimeout(total=None, connect=_CONNECT, sock_read=_SILENCE)
        self._session = aiohttp.ClientSession(
            headers=self._headers, timeout=timeout, trust_env=False
        )
        try:
            where, verb = f"bucket/{quote(self._bucket, safe='')}", f"use the bucket {self._bucket}"
            async with self._ask("GET", where, "ESCLUSA_ARTIFACTS", verb) as answer:
                await self._told(answer, "ESCLUSA_ARTIFACTS", verb, "name")
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
        async with self._ask("GET", self._place(path), path, "read it") as answer:
            return bytes(await answer.read())

    async def stream(self, path: str, chunk: int = 1 << 20) -> AsyncIterator[bytes]:
        if chunk < 1:
            raise ValueError(f"chunk must be at least 1, not {chunk}")
        async with self._ask("GET", self._place(path), path, "read it") as answer:
            async for block in answer.content.iter_chunked(chunk):
                yield block

    async def info(self, path: str) -> ArtifactInfo | None:
        try:
            async with self._ask("GET", self._place(path, "info/"), path, "look at it") as answer:
                found = await self._told(answer, path, "look at it", "size")
        except ArtifactMissing:
            return None
        return _described(path, found["size"], found.get("etag"), found.get("last_modified"))

    async def list(self, prefix: str = "") -> AsyncIterator[ArtifactInfo]:
        asked: dict[str, Any] = {
            "prefix": key_of(clean_prefix(prefix)),
            "limit": _PAGE,
            "with_delimiter": False,
        }
        found: list[ArtifactInfo] = []
        while True:
            async with self._ask(
                "POST",
                f"object/list-v2/{quote(self._bucket, safe='')}",
                prefix or "/",
                "list it",
                json=asked,
            ) as answer:
                page = await self._told(answer, prefix or "/", "list it", "objects")
            for each in page["objects"]:
                told = each.get("metadata") or {}
                found.append(
                    _described(
                        path_of(each["name"]),
                        told.get("size"),
                        told.get("eTag"),
                        each.get("updated_at"),
                    )
                )
            if not page.get("hasNext") or not page.get("nextCursor"):
                break
            asked["cursor"] = page["nextCursor"]
        for info in sorted(
            found, key=lambda info: info.path
        ):  # keys are in order, which paths then are not
            yield info

    async def delete(self, path: str) -> None:
        body = {"prefixes": [key_of(clean(path))]}
        try:
            async with self._ask(
                "DELETE", f"object/{quote(self._bucket, safe='')}", path, "delete it", json=body
            ):
                return
        except ArtifactMissing:
            return

    def public_url(self, path: str) -> str:
        return f"{self._public}/{quote(key_of(clean(path)), safe='/')}"

    # sending

    async def _send_stream(
        self, path: str, body: AsyncIterable[bytes], kind: str, create: bool
    ) -> None:
        async with aclosing(regroup(body, _BLOCK)) as blocks:
            first = await anext(blocks)
            second = await anext(blocks, None)
            if second is None:
                await self._send(path, first, len(first), kind, create)
                return
            with tempfile.NamedTemporaryFile(prefix="esclusa-") as spool:

                async def keep(*blocks: bytes) -> None:
                    try:
                        await asyncio.to_thread(spool.writelines, blocks)
                        await asyncio.to_thread(spool.flush)
                    except OSError as error:
                        raise ArtifactError(
                            f"{path}: its body cannot be spooled to {tempfile.gettempdir()}: {error.strerror}"
                        ) from error

                await keep(first, second)
                del first, second
                async for block in blocks:
                    await keep(block)
                await self._send_file(path, Path(spool.name), kind, create)

    async def _send_file(self, path: str, source: Path, kind: str, create: bool) -> None:
        try:
            file = await asyncio.to_thread(source.open, "rb")
        except OSError as error:
            raise ArtifactError(
                f"{path}: its body cannot be read from {source}: {error.strerror}"
            ) from error
        with file:
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
        patience = _PATIENCE + size / _SLOWEST
        async with self._ask(
            "POST", self._place(path), path, "write it", patience, data=body, headers=headers
        ) as answer:
            await self._told(answer, path, "write it", "Key")

    def _place(self, path: str, verb: str = "") -> str:
        return f"object/{verb}{quote(self._bucket, safe='')}/{quote(key_of(clean(path)), safe='/')}"

    @asynccontextmanager
    async def _ask(
        self,
        method: str,
        where: str,
        path: str,
        verb: str,
        patience: float | None = None,
        **options: Any,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """One call, of at most ``patience`` seconds; ArtifactError with what the server said if it did not do it."""
        import aiohttp  # noqa: PLC0415 - loaded by open
        from yarl import URL  # noqa: PLC0415 - comes with aiohttp

        if self._session is None:
            raise ArtifactError(f"{path}: cannot {verb}: {self.url} is not open")
        if patience is not None:
            options["timeout"] = aiohttp.ClientTimeout(
                total=patience, connect=_CONNECT, sock_read=_SILENCE
            )
        try:
            address = URL(
                f"{self._base}/{where}", encoded=True
            )  # escaped already, and escapes must stay as they are
            async with self._session.request(
                method, address, allow_redirects=False, **options
            ) as answer:
                if answer.status >= 300:
                    raise _refusal(path, verb, answer.status, await answer.content.read(4096))
                yield answer
        except (aiohttp.ClientError, TimeoutError) as error:
            why = (
                "it took too long"
                if isinstance(error, TimeoutError)
                else str(error) or type(error).__name__
            )
            raise ArtifactError(f"{path}: cannot {verb}: {self._base}: {why[:200]}") from None

    async def _told(
        self, answer: aiohttp.ClientResponse, path: str, verb: str, least: str
    ) -> dict[str, Any]:
        """What the server says of a call that it did, with ``least`` in it. A page of somebody else's (a gateway, a login) is no such
        thing, whatever its status: then nobody knows that it was done."""
        try:
            found: dict[str, Any] = json.loads(await answer.read())
            _ = found[least]
        except (ValueError, KeyError, TypeError):
            raise ArtifactError(
                f"{path}: cannot {verb}: {self._base} does not answer as Supabase does; is SUPABASE_URL right?"
            ) from None
        return found


def _refusal(path: str, verb: str, status: int, body: bytes) -> ArtifactError:
    try:
        said = json.loads(body)
        told = {str(said.get(name)) for name in ("statusCode", "code", "error")}
        words = [
            str(said[name]) for name in ("statusCode", "code", "error", "message") if said.get(name)
        ]
    except (ValueError, AttributeError):
        told, words = set(), [f"HTTP {status}"]
    text = f"{path}: cannot {verb}: {': '.join(dict.fromkeys(words)) or f'HTTP {status}'}"[:500]
    if told & _EXISTS:
        return ArtifactExists(f"{path}: there is an object of that name already")
    bucket = "NoSuchBucket" in told or "Bucket not found" in told
    return ArtifactMissing(text) if told & _MISSING and not bucket else ArtifactError(text)


def _described(path: str, size: Any, etag: Any, modified: Any) -> ArtifactInfo:
    when = datetime.fromisoformat(modified) if isinstance(modified, str) else None
    return ArtifactInfo(path, int(size or 0), str(etag or f"{modified}-{size}").strip('"'), when)
