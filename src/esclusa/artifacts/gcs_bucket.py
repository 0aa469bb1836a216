"""A bucket of Cloud Storage through Google's own client. All calls block: make them in a thread.

Errors of Google's libraries do not leave this module; every failure is an ArtifactError.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

import requests
from google.api_core import exceptions as api
from google.api_core.retry import Retry
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
from google.cloud import storage
from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
from google.cloud.storage.fileio import BlobWriter
from google.cloud.storage.retry import DEFAULT_RETRY

from esclusa.artifacts.gcs import PART
from esclusa.model.errors import ArtifactError, ArtifactExists, ArtifactMissing
from esclusa.model.value import value

T = TypeVar("T")

# The metadata key in which a create-only put stores a random token, to recognize its object.
MARK = "esclusa-put"

_TIMEOUT = (5.0, 60.0)
_ERRORS = (
    api.GoogleAPIError,
    InvalidResponse,
    DataCorruption,
    GoogleAuthError,
    requests.RequestException,
    OSError,
    ValueError,
)


def _was_not_done(error: Exception) -> bool:
    """Whether the server did nothing, so that a write without a precondition may be repeated."""
    return isinstance(error, api.TooManyRequests | api.ServiceUnavailable | requests.ConnectTimeout)


# For reads, conditional writes and the parts of an upload session, which are idempotent.
_RETRY = DEFAULT_RETRY.with_delay(initial=0.1, maximum=3.0, multiplier=2.0).with_timeout(30.0)
_RETRY_IF_NOT_DONE = Retry(
    predicate=_was_not_done, initial=0.1, maximum=3.0, multiplier=2.0, timeout=30.0
)


@value
class GcsObject:
    """An object as the bucket describes it."""

    key: str
    size: int
    generation: int
    created: datetime | None
    crc32c: str | None


class GcsBucket:
    """One bucket. Construct it in a thread too: finding the credentials may take a request."""

    def __init__(self, name: str, *, endpoint: str | None, threads: int) -> None:
        self.name = name
        try:
            if endpoint:
                nobody = AnonymousCredentials()  # type: ignore[no-untyped-call]
                self._client = storage.Client(
                    "esclusa", nobody, client_options={"api_endpoint": endpoint}
                )
            else:
                self._client = storage.Client()
        except DefaultCredentialsError:
            raise ArtifactError(
                f"ESCLUSA_ARTIFACTS: the bucket {name} cannot be used: there are no Google"
                " credentials here; run with a service account, run 'gcloud auth"
                " application-default login', or set GOOGLE_APPLICATION_CREDENTIALS"
            ) from None
        except (GoogleAuthError, OSError, ValueError) as error:
            raise ArtifactError(
                f"ESCLUSA_ARTIFACTS: the bucket {name} cannot be used: {reason(error)}"
            ) from None
        adapter = requests.adapters.HTTPAdapter(pool_connections=2, pool_maxsize=threads)
        self._client._http.mount("https://", adapter)  # noqa: SLF001 - no public way to a larger pool
        self._bucket = self._client.bucket(name)

    def close(self) -> None:
        self._client.close()

    def probe(self, prefix: str) -> None:
        """Raise ArtifactError if the bucket cannot be listed, the minimum for all other calls."""
        try:
            for _ in self._client.list_blobs(
                self._bucket, prefix=prefix or None, max_results=1, timeout=_TIMEOUT, retry=_RETRY
            ):
                break
        except api.NotFound:
            raise ArtifactError(
                f"ESCLUSA_ARTIFACTS: there is no bucket {self.name}, or this account may not see it"
            ) from None
        except _ERRORS as error:
            raise ArtifactError(
                f"ESCLUSA_ARTIFACTS: the bucket {self.name} cannot be used: {reason(error)}"
            ) from None

    # Writing

    def send(
        self, path: str, key: str, body: bytes, content_type: str | None, *, create: bool
    ) -> None:
        """Write an object in one request. With ``create``, raise ArtifactExists if it exists."""
        blob, token = self._new(key, create=create)

        def upload() -> None:
            blob.upload_from_string(
                body,
                content_type or "application/octet-stream",
                if_generation_match=0 if create else None,
                timeout=_TIMEOUT,
                retry=_RETRY if create else None,
            )

        with self._errors(path, "write", key, token):
            upload() if create else _RETRY_IF_NOT_DONE(upload)()

    def upload(self, path: str, key: str, content_type: str | None, *, create: bool) -> GcsUpload:
        """Start an upload session: the object exists once it is closed, and never if abandoned."""
        blob, token = self._new(key, create=create)
        writer = BlobWriter(
            blob,
            chunk_size=PART,
            retry=_RETRY,
            timeout=_TIMEOUT,
            checksum="crc32c",
            content_type=content_type or "application/octet-stream",
            **({"if_generation_match": 0} if create else {}),
        )
        return GcsUpload(writer, lambda: self._errors(path, "write", key, token))

    def _new(self, key: str, *, create: bool) -> tuple[Any, str | None]:
        blob, token = self._bucket.blob(key), None
        if create:
            token = secrets.token_hex(16)
            blob.metadata = {MARK: token}
        return blob, token

    @contextmanager
    def _errors(self, path: str, verb: str, key: str, token: str | None = None) -> Iterator[None]:
        """Raise ArtifactError in place of the library's errors.

        A create-only write whose answer was lost is refused when it is repeated, because its own
        object exists. It has succeeded if the object carries this put's token.
        """
        try:
            yield
        except (api.PreconditionFailed, InvalidResponse) as error:
            if token is None or _status(error) != 412:
                raise ArtifactError(f"{path}: cannot {verb} it: {reason(error)}") from None
            if not self._is_marked(path, key, token):
                raise ArtifactExists(f"{path}: an object of that name exists already") from None
        except _ERRORS as error:
            raise ArtifactError(f"{path}: cannot {verb} it: {reason(error)}") from None

    def _is_marked(self, path: str, key: str, token: str) -> bool:
        with self._errors(path, "look at", key):
            found = self._bucket.get_blob(key, timeout=_TIMEOUT, retry=_RETRY)
        return found is not None and (found.metadata or {}).get(MARK) == token

    def delete(self, path: str, key: str) -> None:
        """Remove an object. An object that does not exist is no error."""

        def remove() -> None:
            self._bucket.blob(key).delete(timeout=_TIMEOUT, retry=None)

        with self._errors(path, "delete", key):
            try:
                _RETRY_IF_NOT_DONE(remove)()
            except api.NotFound:
                return

    # Reading

    def find(self, path: str, key: str) -> GcsObject | None:
        """Describe an object; None if it does not exist."""
        with self._errors(path, "look at", key):
            blob = self._bucket.get_blob(key, timeout=_TIMEOUT, retry=_RETRY)
        return None if blob is None else _found(blob)

    def read(
        self,
        path: str,
        key: str,
        *,
        start: int | None = None,
        end: int | None = None,
        generation: int | None = None,
    ) -> bytes:
        """Read the bytes from ``start`` up to ``end``, or all, of this generation or the newest."""

        def download() -> Any:
            try:
                return self._bucket.blob(key).download_as_bytes(
                    start=start,
                    end=None if end is None else end - 1,
                    raw_download=True,
                    if_generation_match=generation,
                    timeout=_TIMEOUT,
                    retry=None,
                )
            except api.GoogleAPICallError as error:
                if error.response is not None:
                    error.response.close()  # the library leaves it open after a refusal
                raise

        with self._errors(path, "read", key):
            try:
                content: bytes = _RETRY(download)()
                return content
            except api.NotFound:
                raise ArtifactMissing(
                    f"{path}: there is no such object in gs://{self.name}"
                ) from None
            except api.PreconditionFailed:
                raise ArtifactError(f"{path}: it was replaced while it was read") from None

    def pages(self, prefix: str) -> Callable[[], list[GcsObject] | None]:
        """Return a function that gives the next page of objects, in order of key, then None."""
        pages = self._client.list_blobs(
            self._bucket,
            prefix=prefix or None,
            page_size=1000,
            timeout=_TIMEOUT,
            retry=_RETRY,
            fields="items(name,size,generation,timeCreated,crc32c),nextPageToken",
        ).pages

        def next_page() -> list[GcsObject] | None:
            with self._errors(f"gs://{self.name}/{prefix}", "list", prefix):
                page = next(pages, None)
                return None if page is None else [_found(blob) for blob in page]

        return next_page


class GcsUpload:
    """An upload session. Use it from one thread at a time."""

    def __init__(self, writer: BlobWriter, errors: Callable[[], Any]) -> None:
        self._writer = writer
        self._errors = errors

    def write(self, block: bytes) -> None:
        with self._errors():
            self._writer.write(block)

    def close(self) -> None:
        """Finish: the object exists when this returns."""
        with self._errors():
            self._writer.close()

    def abandon(self) -> None:
        """Give up the session. Never raises: the server drops an open session after a week."""
        try:
            self._writer.terminate()
        except _ERRORS:
            return


def _found(blob: Any) -> GcsObject:
    return GcsObject(
        blob.name, blob.size or 0, blob.generation or 0, blob.time_created, blob.crc32c
    )


def _status(error: Exception) -> int | None:
    if isinstance(error, InvalidResponse):
        return int(error.response.status_code)
    return getattr(error, "code", None)


def reason(error: Exception) -> str:
    """The server's reason in one line. The library's own text repeats the request."""
    if isinstance(error, api.RetryError) and isinstance(error.cause, Exception):
        return reason(error.cause)
    status = _status(error)
    if isinstance(error, InvalidResponse):
        return f"{status} {_message(error.response)}".strip()
    if isinstance(error, api.GoogleAPICallError):
        message = _message(error.response) if error.response is not None else ""
        return f"{status} {message or error.message}"[:400]
    text = str(error).split("\n", 1)[0].strip()
    return f"{type(error).__name__}: {text}"[:400] if text else type(error).__name__


def _message(response: Any) -> str:
    try:
        return str(response.json()["error"]["message"])[:300]
    except (ValueError, KeyError, TypeError, AttributeError):
        return str(getattr(response, "reason", "") or "")[:300]
