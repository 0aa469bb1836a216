"""The settings of the pipeline ``media``."""

from __future__ import annotations

from random import Random
from typing import Any

from pydantic import BaseModel, SecretStr, field_validator

from esclusa import Backoff, Breaker, above, beginning, one_of, option
from esclusa.http import AllowedHosts
from esclusa.pipelines.media import paths
from esclusa.pipelines.media.paths import DEFAULT_PATH
from esclusa.pipelines.media.records import Publication

# The text columns by which a row can be chosen.
TAKE_BY = ("post_id", "tipo_item", "mensaje", "page_id", "nombre_nora")


class MediaSettings(BaseModel):
    """Limits of downloads and retries, the team's table and folders, the secrets of Meta."""

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
    take: tuple[str, ...] = option(
        "MEDIA_TAKE",
        (),
        help="Which rows with a link are media: conditions on columns, separated by commas. "
        "tipo_item=photo|video,mensaje takes photos and videos with a caption; a name alone means "
        "neither NULL nor empty.",
    )
    path: str = option(
        "MEDIA_PATH",
        DEFAULT_PATH,
        help="Path of a file in the artifact store, with columns in braces and {ext}, such as "
        "{nombre_nora}/publicaciones_meta/{post_id}{ext}.",
    )
    tenants: tuple[str, ...] = option(
        "MEDIA_TENANTS",
        (),
        help="The tenant (nombre_nora) of each page that the webhook receives: page=tenant; "
        "*=tenant for all others.",
    )
    files_at: tuple[str, ...] = option(
        "MEDIA_FILES_AT",
        (),
        help="Beginnings of addresses in imagen_local and video_local that count as downloaded "
        "when a table is first attached. Default: those of SUPABASE_URL; without it, any address.",
    )
    supabase_url: str | None = option(
        "SUPABASE_URL", None, help="Address of the Supabase project, if files are stored there."
    )
    breaker_errors: int = option(
        "MEDIA_BREAKER_ERRORS",
        5,
        ge=1,
        help="Storage errors in a row after which downloads pause, without counting attempts.",
    )
    breaker_seconds: float = option(
        "MEDIA_BREAKER_SECONDS",
        30.0,
        gt=0,
        le=3600,
        help="First pause after storage errors; it doubles, up to 15 minutes.",
    )
    keep_deliveries_days: float = option(
        "MEDIA_KEEP_DELIVERIES_DAYS",
        30.0,
        gt=0,
        help="How long deliveries of the webhook are kept after they were mapped.",
    )
    access_token: SecretStr | None = option(
        "META_ACCESS_TOKEN",
        None,
        secret=True,
        help="Page token of the Graph API, to ask for a fresh link when one has expired.",
    )
    graph_url: str = option(
        "META_GRAPH_URL",
        "https://graph.facebook.com/v23.0",
        pattern=r"https?://.+",
        help="Address of the Graph API, with its version.",
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

    @field_validator("take")
    @classmethod
    def _conditions(cls, conditions: tuple[str, ...]) -> tuple[str, ...]:
        known = [name for name in Publication.model_fields if name in TAKE_BY]
        for each in conditions:
            name, equals, values = each.partition("=")
            if name.strip() not in known or (equals and not values.strip()):
                raise ValueError(
                    f"{each!r} is not a condition such as tipo_item=photo|video or mensaje; "
                    f"the columns are {', '.join(known)}"
                )
        return conditions

    @field_validator("tenants")
    @classmethod
    def _pages(cls, tenants: tuple[str, ...]) -> tuple[str, ...]:
        for each in tenants:
            page, equals, tenant = each.partition("=")
            if not (page.strip() and equals and tenant.strip()):
                raise ValueError(f"{each!r} is not page=tenant")
        return tenants

    @field_validator("path")
    @classmethod
    def _pattern(cls, pattern: str) -> str:
        paths.check(pattern)
        return pattern

    @field_validator("allow_hosts")
    @classmethod
    def _hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        AllowedHosts.parse(hosts)
        return hosts

    @property
    def allowed(self) -> AllowedHosts:
        return AllowedHosts.parse(self.allow_hosts)

    @property
    def where(self) -> dict[str, Any]:
        """The filter of the rows that are downloaded."""
        found: dict[str, Any] = {"imagen_url": above("")}
        for each in self.take:
            name, equals, values = (part.strip() for part in each.partition("="))
            choices = [value.strip() for value in values.split("|")]
            found[name] = one_of(*choices) if equals else above("")
        return found

    @property
    def tenant_of(self) -> dict[str, str]:
        """The tenant of each page."""
        pairs = (each.partition("=") for each in self.tenants)
        return {page.strip(): tenant.strip() for page, _, tenant in pairs}

    @property
    def storage(self) -> tuple[str, ...]:
        """How addresses of the team's storage begin, if that is known."""
        if self.files_at or not self.supabase_url:
            return self.files_at
        address = self.supabase_url.strip(" \"'").rstrip("/").removesuffix("/storage/v1")
        return (f"{address}/storage/v1/object/public/",)

    @property
    def adopt(self) -> dict[str, list[dict[str, Any]]]:
        """Which rows of a table that is first attached have their file."""
        tests: list[Any] = [beginning(each) for each in self.storage] or [above("")]
        return {"success": [{name: t} for name in ("imagen_local", "video_local") for t in tests]}

    @property
    def breaker(self) -> Breaker:
        return Breaker(
            "storage_error", errors=self.breaker_errors, pause=self.breaker_seconds, cap="15m"
        )

    def backoff_after(self, attempt: int) -> float:
        """The seconds to wait after a failed attempt."""
        return self.backoff.delay(attempt, Random(0))  # without jitter, so not random

    @property
    def backoff(self) -> Backoff:
        return Backoff(
            tries=self.max_attempts, base=self.backoff_seconds, factor=2.0, cap=3600.0, jitter=0.0
        )
