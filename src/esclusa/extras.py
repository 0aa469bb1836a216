"""Packages that come with an extra of Esclusa, and the message when one is missing."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

# The extra that brings a package, by the name under which it is imported.
EXTRAS: Final[Mapping[str, str]] = {
    "alembic": "sqlalchemy",
    "apprise": "apprise",
    "brotli": "brotli",
    "django": "django",
    "google": "google",
    "jwt": "oidc",
    "obstore": "s3",
    "opentelemetry": "otel",
    "psycopg": "psycopg",
    "pyarrow": "parquet",
    "pypdfium2": "documents",
    "selectolax": "tenders",
    "sqlalchemy": "sqlalchemy",
    "uvloop": "uvloop",
    "xlsxwriter": "xlsx",
}
# What the built-in pipelines import when they are loaded, or later when they work.
PIPELINES: Final[Mapping[str, tuple[str, ...]]] = {
    "documents": ("pypdfium2",),
    "tenders": ("selectolax",),
}


def is_missing(package: str) -> bool:
    """Whether a package is not installed. It is not imported."""
    try:
        return find_spec(package) is None
    except ModuleNotFoundError:  # the package that it is part of is missing
        return True


def advice(package: str) -> str:
    """What to install for a package: ``it needs the extra esclusa[s3]: pip install …``."""
    extra = EXTRAS[package]
    return f"it needs the extra esclusa[{extra}]: pip install 'esclusa[{extra}]'"


def missing_for(pipeline: str) -> str | None:
    """What to install for a built-in pipeline; None if it can be loaded."""
    missing = next((p for p in PIPELINES.get(pipeline, ()) if is_missing(p)), None)
    return None if missing is None else advice(missing)


def advice_for(error: BaseException) -> str | None:
    """What to install after this error; None if it is not about a package of an extra."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    package = (name or "").partition(".")[0]
    return advice(package) if package in EXTRAS else None


def with_advice(error: ModuleNotFoundError) -> ModuleNotFoundError:
    """The same error, whose message also says what to install."""
    what = advice_for(error)
    return error if what is None else ModuleNotFoundError(f"{error}: {what}", name=error.name)
