"""The settings of the pipeline ``media``."""

from __future__ import annotations

from pydantic import BaseModel, SecretStr, field_validator

from esclusa import Backoff, option
from esclusa.http import AllowedHosts


class MediaSettings(BaseModel):
    """Limits of downloads and retries, and the secrets of the webhook."""

    timeout_seconds: float = option(
        "MEDIA_TIMEOUT_SECONDS",
        30.0,
        gt=0,
        le=3600,
        help="Seconds for a whole download, including redirects.",
    )
    max_bytes: int = option(
        "MEDIA_MAX_BYTES",
        200 << 20,
        ge=1,
        help="Largest accepted file in bytes, after decompression.",
    )
    max_redirects: int = option(
        "MEDIA_MAX_REDIRECTS", 5, ge=0, le=20, help="Redirects that are followed."
    )
    allow_hosts: tuple[str, ...] = option(
        "MEDIA_ALLOW_HOSTS",
        (),
        help="Hosts (host, host:port) and networks (10.0.0.0/8) that may be called although they "
        "are not public.",
    )
    max_attempts: int = option(
        "MEDIA_MAX_ATTEMPTS",
        5,
        ge=1,
        le=100,
        help="Attempts before a publication ends in error.",
    )
    backoff_seconds: float = option(
        "MEDIA_BACKOFF_SECONDS",
        60.0,
        ge=0,
        le=3600,
        help="Wait after the first failure; it doubles with each attempt, up to one hour.",
    )
    concurrency: int = option(
        "MEDIA_CONCURRENCY", 16, ge=1, le=256, help="Concurrent downloads per process."
    )
    interval_seconds: float = option(
        "MEDIA_INTERVAL_SECONDS", 300.0, gt=0, le=366 * 86400, help="How often media.download runs."
    )
    alert_error_rate: float = option(
        "MEDIA_ALERT_ERROR_RATE",
        0.2,
        ge=0,
        le=1,
        help="Share of failed downloads in a batch above which an alert is raised.",
    )
    alert_min_batch: int = option(
        "MEDIA_ALERT_MIN_BATCH", 5, ge=1, help="Smallest batch that can raise an alert."
    )
    app_secret: SecretStr | None = option(
        "META_APP_SECRET",
        None,
        secret=True,
        help="Secret that signs the webhook; without it every delivery is refused.",
    )
    verify_token: SecretStr | None = option(
        "META_VERIFY_TOKEN", None, secret=True, help="Token that Meta sends to verify the webhook."
    )

    @field_validator("allow_hosts")
    @classmethod
    def _hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        AllowedHosts.parse(hosts)
        return hosts

    @property
    def allowed(self) -> AllowedHosts:
        return AllowedHosts.parse(self.allow_hosts)

    @property
    def backoff(self) -> Backoff:
        return Backoff(
            tries=self.max_attempts, base=self.backoff_seconds, factor=2.0, cap=3600.0, jitter=0.0
        )
