"""Buckets of Cloud Storage, through Google's client in a thread pool."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, TypeVar

from esclusa import Failure, Permanent, Text
from esclusa.pipelines.documents.buckets import Blob

T = TypeVar("T")
PAGE_SIZE = 1000
TIMEOUT = 120.0
_threads = ThreadPoolExecutor(32, "storage")


class CloudBucket:
    """One bucket; the client's retries are off, because the engine repeats and counts attempts."""

    def __init__(self, name: str) -> None:
        self._name = name

    @cached_property
    def _client(self) -> Any:
        try:
            from google.auth.credentials import AnonymousCredentials  # noqa: PLC0415 - an extra
            from google.cloud import storage  # noqa: PLC0415
        except ImportError:
            raise Permanent(
                Text(
                    "{uri} is not in DOCUMENTS_LOCAL_BUCKETS, and Cloud Storage needs"
                    " esclusa[google]",
                    uri=f"gs://{self._name}",
                ),
                type="configuration",
            ) from None
        if os.environ.get("STORAGE_EMULATOR_HOST"):
            anonymous: Any = AnonymousCredentials
            return storage.Client(project="local", credentials=anonymous())
        return storage.Client()

    async def list(self, prefix: str) -> AsyncIterator[Blob]:
        pages = await self._run(
            lambda: (
                self._client.list_blobs(
                    self._name,
                    prefix=f"{prefix}/" if prefix else None,
                    page_size=PAGE_SIZE,
                    retry=None,
                    timeout=TIMEOUT,
                ).pages
            )
        )
        # A page without objects need not be the last.
        while (page := await self._run(lambda: next(pages, None))) is not None:
            for blob_info in page:
                yield self._blob(blob_info)

    async def head(self, blob: Blob, count: int) -> bytes:
        return await self._run(lambda: self._get(blob.name, blob.generation, count))

    async def read(self, name: str, generation: str) -> bytes:
        return await self._run(lambda: self._get(name, generation, None))

    def _blob(self, blob_info: Any) -> Blob:
        return Blob(
            blob_info.name,
            str(blob_info.generation),
            int(blob_info.size or 0),
            f"gs://{self._name}/{blob_info.name}",
            blob_info.time_created,
        )

    def _get(self, name: str, generation: str, count: int | None) -> bytes:
        from google.api_core import exceptions  # noqa: PLC0415

        missing = Permanent(
            Text(
                "{uri}: generation {generation} no longer exists",
                uri=f"gs://{self._name}/{name}",
                generation=generation,
            ),
            type="object_gone",
        )
        blob = self._client.bucket(self._name).get_blob(name, retry=None, timeout=TIMEOUT)
        if blob is None or str(blob.generation) != generation:
            raise missing
        try:
            content: bytes = blob.download_as_bytes(
                end=None if count is None else count - 1,
                raw_download=True,
                if_generation_match=int(generation),
                retry=None,
                timeout=TIMEOUT,
                checksum=None if count is not None else "auto",
            )
        except exceptions.NotFound:  # deleted in the meantime
            raise missing from None
        return content[:count]

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(
            _threads, self._translate_errors, call
        )

    def _translate_errors(self, call: Callable[[], T]) -> T:
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
                Text("{uri}: the object was replaced", uri=f"gs://{self._name}"),
                type="object_gone",
            ) from None
        except (exceptions.Forbidden, exceptions.Unauthorized, exceptions.BadRequest) as error:
            raise Permanent(f"gs://{self._name}: {error.message}", type="storage_refused") from None
        except exceptions.GoogleAPICallError as error:
            raise Failure(f"gs://{self._name}: {error.message}", type="storage_error") from None
        except (auth.GoogleAuthError, OSError) as error:
            raise Failure(
                f"gs://{self._name}: {type(error).__name__}: {error}", type="storage_error"
            ) from None
