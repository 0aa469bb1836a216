"""Buckets of Cloud Storage, through Google's client in threads of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, TypeVar

from esclusa import Failure, Permanent
from esclusa.pipelines.documents.buckets import Blob

T = TypeVar("T")
PAGE = 1000
TIMEOUT = 120.0
_threads = ThreadPoolExecutor(32, "storage")


class CloudBucket:
    """One bucket. The client's own retries are off: the engine counts, shows and repeats attempts."""

    def __init__(self, name: str) -> None:
        self._name = name

    @cached_property
    def _client(self) -> Any:
        try:
            from google.auth.credentials import AnonymousCredentials  # noqa: PLC0415 - an extra
            from google.cloud import storage  # noqa: PLC0415
        except ImportError:
            raise Permanent(
                f"gs://{self._name} is not in DOCUMENTS_LOCAL_BUCKETS, and Cloud Storage needs esclusa[google]",
                type="configuration",
            ) from None
        if os.environ.get("STORAGE_EMULATOR_HOST"):
            return storage.Client(project="local", credentials=AnonymousCredentials())  # type: ignore[no-untyped-call]
        return storage.Client()

    async def list(self, prefix: str) -> AsyncIterator[Blob]:
        pages = await self._run(
            lambda: (
                self._client.list_blobs(
                    self._name, prefix=f"{prefix}/", page_size=PAGE, retry=None, timeout=TIMEOUT
                ).pages
            )
        )
        while (
            page := await self._run(lambda: next(pages, None))
        ) is not None:  # one without objects is not the last
            for one in page:
                yield self._blob(one)

    async def head(self, blob: Blob, count: int) -> bytes:
        return await self._run(lambda: self._get(blob.name, blob.generation, count))

    async def read(self, name: str, generation: str) -> bytes:
        return await self._run(lambda: self._get(name, generation, None))

    def _blob(self, one: Any) -> Blob:
        return Blob(
            one.name, str(one.generation), int(one.size or 0), f"gs://{self._name}/{one.name}"
        )

    def _get(self, name: str, generation: str, count: int | None) -> bytes:
        from google.api_core import exceptions  # noqa: PLC0415

        gone = Permanent(
            f"gs://{self._name}/{name}: generation {generation} is not there any more",
            type="object_gone",
        )
        blob = self._client.bucket(self._name).get_blob(name, retry=None, timeout=TIMEOUT)
        if blob is None or str(blob.generation) != generation:
            raise gone
        try:
            content: bytes = blob.download_as_bytes(
                end=None if count is None else count - 1, raw_download=True, if_generation_match=int(generation), retry=None,
                timeout=TIMEOUT, checksum=None if count is not None else "auto",
            )  # fmt: skip
        except exceptions.NotFound:  # deleted since
            raise gone from None
        return content[:count]

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(_threads, self._guarded, call)

    def _guarded(self, call: Callable[[], T]) -> T:
        from google.api_core import exceptions  # noqa: PLC0415
        from google.auth import exceptions as auth  # noqa: PLC0415

        try:
            return call()
        except exceptions.NotFound as error:
            raise Permanent(
                f"gs://{self._name}: {error.message}", type="bucket_not_found"
            ) from None
        except exceptions.PreconditionFailed:
            raise Permanent(
                f"gs://{self._name}: the object was replaced", type="object_gone"
            ) from None
        except (exceptions.Forbidden, exceptions.Unauthorized, exceptions.BadRequest) as error:
            raise Permanent(f"gs://{self._name}: {error.message}", type="storage_refused") from None
        except exceptions.GoogleAPICallError as error:
            raise Failure(f"gs://{self._name}: {error.message}", type="storage_error") from None
        except (auth.GoogleAuthError, OSError) as error:
            raise Failure(
                f"gs://{self._name}: {type(error).__name__}: {error}", type="storage_error"
            ) from None
