"""Artifact stores: a folder or a bucket, chosen by URL."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from esclusa import extras
from esclusa.artifacts.paths import plain_segment, segment
from esclusa.model.errors import ArtifactError, SettingsError
from esclusa.ports.artifacts import Artifacts

__all__ = ["open_artifacts", "plain_segment", "segment"]

_ALLOWED = (
    "allowed are a folder (./artifacts, file:///absolute/path), s3://bucket[/prefix],"
    " gs://bucket[/prefix] and supabase://bucket"
)

# Removed around Supabase's settings: environment files often have quotes.
_QUOTES = " \t\r\n\"'"


def open_artifacts(
    url: str,
    *,
    public_url: str | None = None,
    durable: bool = True,
    environ: Mapping[str, str] = os.environ,
) -> Artifacts:
    """The artifact store of this URL, not yet opened. SettingsError names the wrong setting.

    Credentials come from the environment and never from the URL: S3 reads the usual AWS variables,
    Cloud Storage uses Google's default credentials, and Supabase reads SUPABASE_URL and
    SUPABASE_SERVICE_KEY, SUPABASE_KEY or SUPABASE_SERVICE_KEY_FILE.
    """
    if public_url is not None and urlsplit(public_url).scheme not in {"http", "https"}:
        raise _fault(
            f"the public address must begin with http:// or https://, not {public_url!r}",
            "ESCLUSA_ARTIFACTS_PUBLIC_URL",
        )
    if "://" not in url:
        return _folder(url, public_url, durable)
    parts = urlsplit(url)
    if "@" in parts.netloc:
        keys = {"gs": "GOOGLE_APPLICATION_CREDENTIALS", "supabase": "SUPABASE_SERVICE_KEY"}.get(
            parts.scheme, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
        raise _fault(f"keys do not belong in the URL: set {keys}")
    if parts.query or parts.fragment:
        raise _fault(f"{parts.scheme}:// takes no ?… and no #…; {_ALLOWED}")
    match parts.scheme:
        case "file":
            if parts.netloc not in {"", "localhost"}:
                raise _fault(
                    f"file://{parts.netloc}… names another machine;"
                    " an absolute path has three slashes: file:///path"
                )
            return _folder(unquote(parts.path), public_url, durable)
        case "s3":
            return _s3(parts, public_url, environ)
        case "gs":
            return _google(parts, public_url, environ)
        case "supabase":
            return _supabase(parts, public_url, environ)
        case scheme:
            raise _fault(f"unknown scheme {scheme}://; {_ALLOWED}")


def _folder(path: str, public_url: str | None, durable: bool) -> Artifacts:
    from esclusa.artifacts.local import LocalArtifacts  # noqa: PLC0415 - imported only if used

    if not path.strip() or "\0" in path:
        raise _fault(f"no folder is named; {_ALLOWED}")
    return LocalArtifacts(Path(path), public_url, durable=durable)


def _s3(parts: SplitResult, public_url: str | None, environ: Mapping[str, str]) -> Artifacts:
    if extras.is_missing("obstore"):
        raise _fault(f"s3://: {extras.advice('obstore')}")
    from esclusa.artifacts.s3 import S3Artifacts  # noqa: PLC0415 - imported only if used

    if not parts.netloc:
        raise _fault("no bucket is named; write s3://bucket or s3://bucket/prefix")
    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or None
    if endpoint is not None:
        where = urlsplit(endpoint)
        if where.scheme not in {"http", "https"} or not where.hostname or "@" in where.netloc:
            raise _fault(
                "must be http://host[:port] or https://host[:port], without keys",
                "AWS_ENDPOINT_URL",
            )
    access, secret = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
    if bool(access) != bool(secret):
        raise _fault(
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY go together; only one of them is set",
            "AWS_ACCESS_KEY_ID",
        )
    try:
        return S3Artifacts(
            parts.netloc,
            unquote(parts.path),
            region=environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION"),
            endpoint=endpoint,
            access_key=access,
            secret_key=secret,
            session_token=environ.get("AWS_SESSION_TOKEN"),
            public_url=public_url,
        )
    except ArtifactError as error:
        raise _fault(str(error)) from error


def _google(parts: SplitResult, public_url: str | None, environ: Mapping[str, str]) -> Artifacts:
    from esclusa.artifacts.gcs import GcsArtifacts  # noqa: PLC0415 - imported only if used

    if not parts.netloc:
        raise _fault("no bucket is named; write gs://bucket or gs://bucket/prefix")
    try:
        installed = find_spec("google.cloud.storage") is not None
    except ModuleNotFoundError:
        installed = False
    if not installed:
        raise _fault("gs:// needs the extra esclusa[google]: pip install 'esclusa[google]'")
    endpoint = environ.get("STORAGE_EMULATOR_HOST") or None
    if endpoint is not None and "://" not in endpoint:
        endpoint = f"http://{endpoint}"
    try:
        return GcsArtifacts(
            parts.netloc, unquote(parts.path), endpoint=endpoint, public_url=public_url
        )
    except ArtifactError as error:
        raise _fault(str(error)) from error


def _supabase(parts: SplitResult, public_url: str | None, environ: Mapping[str, str]) -> Artifacts:
    from esclusa.artifacts.supabase import SupabaseArtifacts  # noqa: PLC0415 - imported only if used

    if not parts.netloc or parts.path.strip("/"):
        raise _fault("name a bucket and nothing else: supabase://bucket")
    address = environ.get("SUPABASE_URL", "").strip(_QUOTES)
    where = urlsplit(address)
    if (
        where.scheme not in {"http", "https"}
        or not where.hostname
        or "@" in where.netloc
        or where.query
        or where.fragment
    ):
        raise _fault(
            "must be the project's address, https://project.supabase.co, without keys",
            "SUPABASE_URL",
        )
    key = environ.get("SUPABASE_SERVICE_KEY") or environ.get("SUPABASE_KEY", "")
    if not key and (file := environ.get("SUPABASE_SERVICE_KEY_FILE")):
        try:
            key = Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise _fault(f"{file!r} cannot be read", "SUPABASE_SERVICE_KEY_FILE") from None
    key = key.strip(_QUOTES)
    if not key or not key.isascii() or not key.isprintable():
        raise _fault(
            "is not set, or is not a key; copy it from the project's API settings",
            "SUPABASE_SERVICE_KEY",
        )
    return SupabaseArtifacts(parts.netloc, address=address, key=key, public_url=public_url)


def _fault(what: str, name: str = "ESCLUSA_ARTIFACTS") -> SettingsError:
    return SettingsError("invalid settings of the artifact store:", [f"{name}: {what}"])
