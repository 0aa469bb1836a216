"""Google's errors as Esclusa's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
from google.api_core import exceptions as google
from google.auth.exceptions import GoogleAuthError

from esclusa.model.errors import (
    BadRecord,
    EsclusaError,
    StoreConflict,
    StoreNotReady,
    StoreUnavailable,
)
from esclusa.model.texts import Text, text


class PreconditionFailed(EsclusaError):
    """A precondition does not hold: another writer was first. Callers catch it and read again."""


@contextmanager
def mapped_errors() -> Iterator[None]:
    """Raise Esclusa's errors in place of Google's."""
    try:
        yield
    except (google.FailedPrecondition, google.AlreadyExists, google.NotFound) as error:
        raise PreconditionFailed(str(error)) from error
    except google.Aborted as error:
        raise StoreConflict(f"Firestore: {error.message}") from error
    except google.InvalidArgument as error:
        if "transaction" in error.message and (
            "expired" in error.message or "no longer valid" in error.message
        ):
            raise StoreConflict(f"Firestore: {error.message}") from error
        raise BadRecord(f"Firestore refused the request: {error.message}") from error
    except google.ResourceExhausted as error:
        if "message exceeds maximum size" in error.message:  # a retry is as large
            raise BadRecord(f"Firestore refused the request: {error.message}") from error
        raise StoreUnavailable(unavailable(error)) from error
    except (
        google.GoogleAPICallError,
        google.RetryError,
        grpc.RpcError,
        GoogleAuthError,
    ) as error:
        raise _unavailable_error(error)(unavailable(error)) from error
    except (grpc.aio.UsageError, asyncio.InvalidStateError) as error:
        raise StoreUnavailable(f"Firestore: the connection is closed: {error}") from error


def _unavailable_error(error: Exception) -> type[StoreUnavailable]:
    """The kind of the error: StoreNotReady unless a setting is wrong."""
    passing = isinstance(error, google.ServiceUnavailable | google.DeadlineExceeded)
    return StoreNotReady if passing and "DNS resolution" not in str(error) else StoreUnavailable


def unavailable(error: Exception) -> Text:
    """The text of StoreUnavailable."""
    return text("store_unavailable", store="Firestore", why=str(error))
