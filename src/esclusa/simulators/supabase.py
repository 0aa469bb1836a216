"""Supabase Storage: buckets and objects below ``/storage/v1``, with the real status in the body.

The public bucket ``media`` exists; ``POST /storage/v1/bucket`` creates more. Every call except
those to public objects needs the key ``SERVICE_KEY``.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from esclusa.simulators.base import Simulator

SERVICE_KEY = "service-key-of-the-simulator"

_KEY = re.compile(r"[A-Za-z0-9_/!.*'()&$=@;:+,?\- ]+\Z")
_ROOT = "/storage/v1"


@dataclass
class StoredObject:
    """An object of a bucket."""

    key: str
    body: bytes
    mime: str
    cache: str
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    version: str = field(default_factory=lambda: str(uuid.uuid4()))
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    updated: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.body, usedforsecurity=False).hexdigest()}"'


@dataclass
class SimulatedBucket:
    """A bucket with its objects."""

    id: str
    public: bool = True
    file_size_limit: int | None = None
    allowed_mime_types: list[str] | None = None
    objects: dict[str, StoredObject] = field(default_factory=dict)


class StorageRefusal(Exception):
    """An error of the service. Its HTTP status is 400, with few exceptions."""

    def __init__(self, status: int, code: str, error: str, message: str) -> None:
        self.status, self.body = (
            status,
            {"statusCode": str(status), "error": error, "message": message, "code": code},
        )
        super().__init__(message)

    def answer(self) -> web.Response:
        status = self.status if self.status in (429, 500, 544) else 400
        return web.json_response(self.body, status=status, headers={"Cache-Control": "no-store"})


class SupabaseSimulator(Simulator):
    """Supabase Storage's calls on buckets and objects."""

    def routes(self) -> list[web.RouteDef]:
        return [
            web.route("POST", f"{_ROOT}/bucket", self._wrapped(self._make_bucket)),
            web.route("GET", f"{_ROOT}/bucket/{{bucket}}", self._wrapped(self._get_bucket)),
            web.route("POST", f"{_ROOT}/object/list-v2/{{bucket}}", self._wrapped(self._list)),
            web.route(
                "GET",
                f"{_ROOT}/object/public/{{bucket}}/{{key:.+}}",
                self._wrapped(self._public, open=True),
            ),
            web.route(
                "GET", f"{_ROOT}/object/info/{{bucket}}/{{key:.+}}", self._wrapped(self._info)
            ),
            web.route(
                "GET",
                f"{_ROOT}/object/authenticated/{{bucket}}/{{key:.+}}",
                self._wrapped(self._get),
            ),
            web.route("GET", f"{_ROOT}/object/{{bucket}}/{{key:.+}}", self._wrapped(self._get)),
            web.route("POST", f"{_ROOT}/object/{{bucket}}/{{key:.+}}", self._wrapped(self._post)),
            web.route("PUT", f"{_ROOT}/object/{{bucket}}/{{key:.+}}", self._wrapped(self._put)),
            web.route("DELETE", f"{_ROOT}/object/{{bucket}}", self._wrapped(self._delete)),
        ]

    def reset(self) -> None:
        super().reset()
        self.buckets = {"media": SimulatedBucket("media")}

    def _wrapped(self, handler: Any, *, open: bool = False) -> Any:
        async def call(request: web.Request) -> web.StreamResponse:
            try:
                if not open and request.headers.get("Authorization") != f"Bearer {SERVICE_KEY}":
                    raise StorageRefusal(403, "AccessDenied", "Unauthorized", "Invalid Compact JWS")
                answer: web.StreamResponse = await handler(request)
                return answer
            except StorageRefusal as refusal:
                return refusal.answer()

        return call

    def _bucket(self, request: web.Request) -> SimulatedBucket:
        found = self.buckets.get(request.match_info["bucket"])
        if found is None:
            raise StorageRefusal(404, "NoSuchBucket", "Bucket not found", "Bucket not found")
        return found

    def _key(self, request: web.Request, bucket: str) -> str:
        """The key as it was sent, decoded once. The router would decode it differently."""
        return unquote(request.raw_path.partition("?")[0].partition(f"/{bucket}/")[2])

    def _stored(self, request: web.Request) -> StoredObject:
        bucket = self._bucket(request)
        found = bucket.objects.get(self._key(request, bucket.id))
        if found is None:
            raise StorageRefusal(404, "NoSuchKey", "not_found", "Object not found")
        return found

    async def _make_bucket(self, request: web.Request) -> web.Response:
        request_body = await request.json()
        name = str(request_body.get("id") or request_body["name"])
        if name in self.buckets:
            raise StorageRefusal(
                409, "ResourceAlreadyExists", "Duplicate", "The resource already exists"
            )
        self.buckets[name] = SimulatedBucket(
            name,
            bool(request_body.get("public")),
            request_body.get("file_size_limit"),
            request_body.get("allowed_mime_types"),
        )
        return web.json_response({"name": name})

    async def _get_bucket(self, request: web.Request) -> web.Response:
        bucket = self._bucket(request)
        description = {
            "id": bucket.id,
            "name": bucket.id,
            "public": bucket.public,
            "file_size_limit": bucket.file_size_limit,
        }
        return web.json_response(description | {"allowed_mime_types": bucket.allowed_mime_types})

    async def _post(self, request: web.Request) -> web.Response:
        return await self._upload(request, upsert=request.headers.get("x-upsert") == "true")

    async def _put(self, request: web.Request) -> web.Response:
        self._stored(request)
        return await self._upload(request, upsert=True)

    async def _upload(self, request: web.Request, *, upsert: bool) -> web.Response:
        bucket = self._bucket(request)
        key = self._key(request, bucket.id)
        if not _KEY.match(key):
            raise StorageRefusal(400, "InvalidKey", "InvalidKey", f"Invalid key: {key}")
        body, mime, cache = await _uploaded(request)
        if bucket.file_size_limit is not None and len(body) > bucket.file_size_limit:
            raise StorageRefusal(
                413,
                "EntityTooLarge",
                "Payload too large",
                "The object exceeded the maximum allowed size",
            )
        if bucket.allowed_mime_types and not any(
            _fits(mime, allowed) for allowed in bucket.allowed_mime_types
        ):
            raise StorageRefusal(
                415, "InvalidMimeType", "invalid_mime_type", f"mime type {mime} is not supported"
            )
        known = bucket.objects.get(key)
        if known is not None and not upsert:
            raise StorageRefusal(
                409, "KeyAlreadyExists", "Duplicate", "The resource already exists"
            )
        made = StoredObject(key, body, mime, cache)
        if known is not None:
            made.id, made.created = known.id, known.created
        bucket.objects[key] = made
        return web.json_response({"Id": made.id, "Key": f"{bucket.id}/{key}"})

    async def _get(self, request: web.Request) -> web.Response:
        return _object_response(self._stored(request))

    async def _public(self, request: web.Request) -> web.Response:
        if not self._bucket(request).public:
            raise StorageRefusal(404, "NoSuchBucket", "Bucket not found", "Bucket not found")
        return _object_response(self._stored(request))

    async def _info(self, request: web.Request) -> web.Response:
        stored = self._stored(request)
        return web.json_response(
            {
                "id": stored.id,
                "name": stored.key,
                "version": stored.version,
                "bucket_id": self._bucket(request).id,
                "size": len(stored.body),
                "content_type": stored.mime,
                "cache_control": stored.cache,
                "etag": stored.etag,
                "metadata": None,
                "last_modified": stored.updated.isoformat(),
                "created_at": stored.created.isoformat(),
            }
        )

    async def _list(self, request: web.Request) -> web.Response:
        bucket, request_body = self._bucket(request), await request.json()
        limit = min(int(request_body.get("limit") or 1000), 1000)
        after, prefix = request_body.get("cursor") or "", request_body.get("prefix") or ""
        keys = [key for key in sorted(bucket.objects) if key.startswith(prefix) and key > after]
        page = [bucket.objects[key] for key in keys[:limit]]
        more = len(keys) > limit
        objects = [
            {
                "id": t.id,
                "name": t.key,
                "updated_at": t.updated.isoformat(),
                "created_at": t.created.isoformat(),
                "metadata": {
                    "eTag": t.etag,
                    "size": len(t.body),
                    "mimetype": t.mime,
                    "cacheControl": t.cache,
                },
            }
            for t in page
        ]
        return web.json_response(
            {"hasNext": more, "folders": [], "objects": objects}
            | ({"nextCursor": page[-1].key} if more and page else {})
        )

    async def _delete(self, request: web.Request) -> web.Response:
        bucket, request_body = self._bucket(request), await request.json()
        deleted = [
            bucket.objects.pop(key)
            for key in request_body["prefixes"][:1000]
            if key in bucket.objects
        ]
        return web.json_response(
            [{"name": t.key, "id": t.id, "bucket_id": bucket.id} for t in deleted]
        )


async def _uploaded(request: web.Request) -> tuple[bytes, str, str]:
    """The content, type and cache control of an upload, in either of its two forms."""
    if not (request.content_type or "").startswith("multipart/"):
        return (
            await request.read(),
            request.headers.get("Content-Type", "application/octet-stream"),
            request.headers.get("Cache-Control", "no-cache"),
        )
    form = await request.post()
    age = form.get("cacheControl")
    for part in form.values():
        if isinstance(part, web.FileField):
            return (
                part.file.read(),
                part.content_type,
                f"max-age={age}" if isinstance(age, str) and age else "no-cache",
            )
    raise StorageRefusal(400, "InvalidRequest", "invalid_request", "No content provided")


def _fits(mime: str, allowed: str) -> bool:
    return mime == allowed or (allowed.endswith("/*") and mime.startswith(allowed[:-1]))


def _object_response(stored: StoredObject) -> web.Response:
    headers = {
        "ETag": stored.etag,
        "Cache-Control": stored.cache,
        "X-Robots-Tag": "none",
        "Content-Type": stored.mime,
    }
    return web.Response(body=stored.body, headers=headers)
