"""The settings of ``replies``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import BaseModel, SecretStr, field_validator

from esclusa import Budget, EsclusaError, Window, every, option

BUDGET = "information_tracer"
DEFAULT_LIMIT = 400


class RepliesSettings(BaseModel):
    """Account, schedule, limits and timeouts."""

    api_key: SecretStr | None = option(
        "INFORMATION_TRACER_API_KEY",
        None,
        secret=True,
        help="The token of the Information Tracer account.",
    )
    api_url: str = option(
        "INFORMATION_TRACER_API_URL",
        "https://informationtracer.com",
        help="The address of the provider's API.",
    )
    bucket_name: str | None = option(
        "GCS_BUCKET_NAME",
        None,
        help="The bucket of the files, if ESCLUSA_ARTIFACTS is not set: gs://bucket.",
    )
    posts_every: str = option("REPLIES_POSTS_EVERY", "30m", help="How often process-posts runs.")
    jobs_every: str = option("REPLIES_JOBS_EVERY", "30m", help="How often process-jobs runs.")
    unknown_count: Literal["skip", "fetch"] = option(
        "REPLIES_UNKNOWN_COUNT",
        "skip",
        help="What to do with a post without counts: skip it, or fetch up to 100 replies.",
    )
    window_days: int = option(
        "REPLIES_WINDOW_DAYS",
        730,
        ge=1,
        le=20_000,
        help="How many days back replies are searched for a post without start_date and without "
        "post_created_at.",
    )
    submit_tries: int = option(
        "REPLIES_SUBMIT_TRIES",
        5,
        ge=1,
        help="How often a post that the provider refuses is submitted before it is exhausted.",
    )
    orphan_seconds: float = option(
        "REPLIES_ORPHAN_SECONDS",
        3600.0,
        ge=0,
        help="Seconds after its last update from which on a job in processing is taken that "
        "another program left there.",
    )
    max_resubmits: int = option(
        "REPLIES_MAX_RESUBMITS",
        1,
        ge=0,
        help="How often a post whose job failed is submitted again automatically.",
    )
    check_concurrency: int = option(
        "REPLIES_CHECK_CONCURRENCY", 16, ge=1, le=500, help="How many jobs are checked at once."
    )
    recheck_seconds: float = option(
        "REPLIES_RECHECK_SECONDS",
        60.0,
        ge=0,
        help="Seconds until a job that is still running is due again.",
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
        help="Consecutive network errors, server errors and crashes after which a job fails.",
    )
    pseudonym_key: SecretStr | None = option(
        "REPLIES_PSEUDONYM_KEY",
        None,
        secret=True,
        help="The key of the pseudonyms in exports with --pseudonymise. Keep it: another key gives"
        " other pseudonyms.",
    )
    daily_limit: int | None = option(
        "REPLIES_DAILY_LIMIT",
        None,
        ge=1,
        help="Maximum of searches per day. Default: the provider's limit, "
        f"or {DEFAULT_LIMIT} if it reports none.",
    )
    keep_searches: int = option(
        "REPLIES_KEEP_SEARCHES",
        1,
        ge=0,
        help="Searches of each day that process-posts leaves unspent, so that process-jobs is not "
        "stopped by the limit. 0 spends all.",
    )
    at_limit: Literal["stop", "collect"] = option(
        "REPLIES_AT_LIMIT",
        "stop",
        help="What process-jobs does when the day's searches are used up: stop, or collect what "
        "was paid for, because checks cost no search.",
    )
    origin_logs: bool = option(
        "REPLIES_ORIGIN_LOGS",
        False,
        help="Whether each run also writes logs/{day}/{time}.json and logs/errors/{day}/{time}.json"
        " in the form of the service before, for scripts that read them.",
    )
    quota_timezone: str = option(
        "REPLIES_QUOTA_TIMEZONE", "UTC", help="The time zone of the provider's daily reset."
    )
    resume_after_reset: bool = option(
        "REPLIES_RESUME_AFTER_RESET",
        True,
        help="Whether quota_exceeded jobs are checked again after the daily reset.",
    )
    submit_seconds: float = option(
        "REPLIES_SUBMIT_SECONDS", 25.0, gt=0, help="Timeout of a submit."
    )
    request_seconds: float = option(
        "REPLIES_REQUEST_SECONDS",
        10.0,
        gt=0,
        help="Timeout of a status or account request.",
    )
    result_seconds: float = option(
        "REPLIES_RESULT_SECONDS", 120.0, gt=0, help="Timeout of a download of replies."
    )

    @field_validator("posts_every", "jobs_every")
    @classmethod
    def _schedule(cls, text: str) -> str:
        try:
            every(text)
        except (ValueError, EsclusaError):
            raise ValueError("must be a duration such as 30m or 2h") from None
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
                "must be https://host or http://host:port, without a user, query or fragment"
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


def missing_settings(settings: RepliesSettings) -> Iterator[str]:
    """Yield what must be set before a cycle can run."""
    if settings.api_key is None or not settings.api_key.get_secret_value().strip():
        yield (
            "INFORMATION_TRACER_API_KEY is not set; "
            "it is the token of the Information Tracer account"
        )


def bucket_address(settings: RepliesSettings) -> tuple[str, str] | None:
    """Return the artifact store that ``GCS_BUCKET_NAME`` means; None if it is not set."""
    name = (settings.bucket_name or "").strip()
    if not name:
        return None
    return "GCS_BUCKET_NAME", name if name.startswith("gs://") else f"gs://{name}"


def search_budget(settings: RepliesSettings) -> Budget:
    """Return the budget of searches per day, shared by all workers.

    The limit that the provider reports replaces the one declared here. Both leave
    ``REPLIES_KEEP_SEARCHES`` unspent.
    """
    limit = spendable(settings.daily_limit or DEFAULT_LIMIT, settings)
    return Budget(BUDGET, Window("day", limit, settings.quota_timezone))


def spendable(limit: int, settings: RepliesSettings) -> int:
    """Return how many searches of a day's limit may be submitted."""
    return max(0, limit - settings.keep_searches)
