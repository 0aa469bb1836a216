"""The settings of ``replies``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import BaseModel, SecretStr, field_validator

from esclusa import Budget, EsclusaError, Window, every, option

DEFAULT_LIMIT = 400


class RepliesSettings(BaseModel):
    """What the pipeline is told."""

    api_key: SecretStr | None = option(
        "INFORMATION_TRACER_API_KEY",
        None,
        secret=True,
        help="The token of the Information Tracer account.",
    )
    api_url: str = option(
        "INFORMATION_TRACER_API_URL",
        "https://informationtracer.com",
        help="Where the provider's API is.",
    )
    posts_every: str = option("REPLIES_POSTS_EVERY", "30m", help="How often process-posts runs.")
    jobs_every: str = option("REPLIES_JOBS_EVERY", "30m", help="How often process-jobs runs.")
    unknown_count: Literal["skip", "fetch"] = option(
        "REPLIES_UNKNOWN_COUNT",
        "skip",
        help="A post of which neither count is known: skip it, or fetch up to 100 replies.",
    )
    max_resubmits: int = option(
        "REPLIES_MAX_RESUBMITS",
        1,
        ge=0,
        help="How often a post whose job failed is submitted again by itself.",
    )
    check_concurrency: int = option(
        "REPLIES_CHECK_CONCURRENCY", 16, ge=1, le=500, help="How many jobs are checked at a time."
    )
    recheck_seconds: float = option(
        "REPLIES_RECHECK_SECONDS",
        60.0,
        ge=0,
        help="A job that is still running is due again after this.",
    )
    poll_rounds: int = option(
        "REPLIES_POLL_ROUNDS",
        1,
        ge=1,
        le=10_000,
        help="How often one run checks a job that is still running.",
    )
    poll_seconds: float = option(
        "REPLIES_POLL_SECONDS", 40.0, ge=0, help="Seconds between the checks of one run."
    )
    max_transient: int = option(
        "REPLIES_MAX_TRANSIENT",
        10,
        ge=1,
        help="Network errors, server errors and crashes in a row after which a job is failed.",
    )
    daily_limit: int | None = option(
        "REPLIES_DAILY_LIMIT", None, ge=1,
        help=f"At most so many searches a day. Without it the provider's own limit holds ({DEFAULT_LIMIT}, if it names none).",
    )  # fmt: skip
    quota_timezone: str = option(
        "REPLIES_QUOTA_TIMEZONE", "UTC", help="The time zone of the provider's daily reset."
    )
    resume_after_reset: bool = option(
        "REPLIES_RESUME_AFTER_RESET",
        True,
        help="Whether jobs that failed for want of quota are checked again after the daily reset.",
    )
    submit_seconds: float = option(
        "REPLIES_SUBMIT_SECONDS", 25.0, gt=0, help="Seconds for one submit."
    )
    request_seconds: float = option(
        "REPLIES_REQUEST_SECONDS",
        10.0,
        gt=0,
        help="Seconds for one question about a job or the account.",
    )
    result_seconds: float = option(
        "REPLIES_RESULT_SECONDS", 120.0, gt=0, help="Seconds for one download of replies."
    )

    @field_validator("posts_every", "jobs_every")
    @classmethod
    def _schedule(cls, text: str) -> str:
        try:
            every(text)
        except (ValueError, EsclusaError):
            raise ValueError("a schedule is a time such as 30m or 2h") from None
        return text

    @field_validator("api_url")
    @classmethod
    def _address(cls, url: str) -> str:
        parts = urlsplit(url)
        if (
            parts.scheme not in ("http", "https")
            or not parts.hostname
            or parts.query
            or parts.fragment
            or "@" in parts.netloc
        ):
            raise ValueError(
                "an address is https://host or http://host:port, with nothing after it"
            )
        return url.rstrip("/")

    @field_validator("quota_timezone")
    @classmethod
    def _zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            raise ValueError(
                f"{name!r} is not a time zone name, such as UTC or America/New_York"
            ) from None
        return name


def missing(settings: RepliesSettings) -> Iterator[str]:
    """What must be set before anything can run."""
    if settings.api_key is None or not settings.api_key.get_secret_value().strip():
        yield "INFORMATION_TRACER_API_KEY is not set; it is the token of the Information Tracer account"


def quota(settings: RepliesSettings) -> Budget:
    """The searches of a day, shared by all workers. What the provider says of them counts; this limit is for when it says none."""
    return Budget(
        "information_tracer",
        Window("day", settings.daily_limit or DEFAULT_LIMIT, settings.quota_timezone),
    )
