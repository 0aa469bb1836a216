"""The settings: their names, defaults, limits and meanings."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    GetPydanticSchema,
    SecretStr,
    ValidationInfo,
    field_validator,
)
from pydantic_core import core_schema

from esclusa.loading import BUILT_IN
from esclusa.model.options import Option, option, options_of
from esclusa.model.plan import Plan
from esclusa.settings.access import ApiToken, read_tokens
from esclusa.stores import check_url

_AsIs = GetPydanticSchema(lambda _source, _handler: core_schema.any_schema())


class Settings(BaseModel):
    """All settings, made by ``load``. Nothing else reads them from the environment."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    store: str = option(
        "ESCLUSA_STORE",
        "sqlite:///esclusa.db",
        help="The store of the records: sqlite:///relative.db, sqlite:////absolute.db, "
        "postgresql://user:password@host[,host]/database or firestore://project[/database].",
    )
    artifacts: str = option(
        "ESCLUSA_ARTIFACTS",
        "./artifacts",
        help="The store of the artifacts: a folder, file:///path, s3://bucket[/prefix], "
        "gs://bucket[/prefix] or supabase://bucket.",
    )
    artifacts_public_url: str | None = option(
        "ESCLUSA_ARTIFACTS_PUBLIC_URL",
        None,
        help="The URL under which readers find the artifacts.",
    )
    artifacts_durable: bool = option(
        "ESCLUSA_ARTIFACTS_DURABLE",
        True,
        help="Sync each file to disk before settling its record. If off, a power cut can lose "
        "the files of the last 30 seconds.",
    )
    pipelines: tuple[str, ...] = option(
        "ESCLUSA_PIPELINES",
        (),
        help=f"The pipelines to load: {', '.join(BUILT_IN)}, module:app or path/to/file.py:app. "
        "Required, except by the commands of a pipeline's own group.",
    )
    api_tokens: Annotated[tuple[ApiToken, ...], _AsIs] = option(
        "ESCLUSA_API_TOKENS",
        (),
        secret=True,
        help="The tokens for API and console: token, token:read or name=token:operate. "
        "Without tokens the server listens only on loopback.",
    )
    host: str = option("ESCLUSA_HOST", "127.0.0.1", help="The address that the server listens on.")
    port: int = option(
        ("PORT", "ESCLUSA_PORT"),
        8082,
        ge=0,
        le=65535,
        help="The port that the server listens on; 0 takes a free one.",
    )
    worker_port: int | None = option(
        "ESCLUSA_WORKER_PORT",
        None,
        ge=0,
        le=65535,
        help="The port on which esclusa worker serves /healthz, /readyz and /metrics, at "
        "ESCLUSA_HOST; 0 takes a free one. If not set, it serves none.",
    )
    liveness_seconds: float = option(
        "ESCLUSA_LIVENESS_SECONDS",
        300.0,
        ge=0,
        help="How long outcomes may wait while the store writes none of them before /healthz of a "
        "worker answers 503; 0 for never.",
    )
    proxies: str = option(
        "ESCLUSA_PROXIES",
        "127.0.0.1,::1",
        help="Proxies whose X-Forwarded-* headers are trusted: addresses and networks with "
        "commas. * trusts every peer: use it if only the proxy can reach the server, as on "
        "Cloud Run. List the proxies before that one, too.",
    )
    cors_origins: tuple[str, ...] = option(
        "ESCLUSA_CORS_ORIGINS",
        (),
        help="Origins whose pages may call the API from a browser, such as "
        "https://app.example.cl. * allows all of them to read.",
    )
    root_path: str = option(
        "ESCLUSA_ROOT_PATH",
        "",
        pattern=r"^(/[A-Za-z0-9._~-]+)*$",
        help="The path below which a proxy serves Esclusa, such as /esclusa, if it does not send "
        "X-Forwarded-Prefix.",
    )
    client_timeout_seconds: float = option(
        "ESCLUSA_CLIENT_TIMEOUT_SECONDS",
        30.0,
        ge=1,
        help="How long an HTTP client may take for the head of a request, and may stall while a "
        "body or the reading of an answer is awaited.",
    )
    max_connections: int = option(
        "ESCLUSA_MAX_CONNECTIONS",
        512,
        ge=1,
        help="HTTP connections per process; beyond them an idle one is closed, or a new one is "
        "answered 503.",
    )
    lease_seconds: float = option(
        "ESCLUSA_LEASE_SECONDS",
        60.0,
        ge=1,
        help="How long a claim holds without being renewed; then the records of a crashed worker "
        "are due again.",
    )
    poll_seconds: float = option(
        "ESCLUSA_POLL_SECONDS",
        1.0,
        gt=0,
        help="How often an idle worker polls the store, in case a notification is lost.",
    )
    grace_seconds: float = option(
        "ESCLUSA_GRACE_SECONDS", 20.0, ge=0, help="How long handlers may go on after a stop signal."
    )
    lifespan_seconds: float = option(
        "ESCLUSA_LIFESPAN_SECONDS",
        30.0,
        gt=0,
        help="How long the lifespan of a pipeline may take to open. One that takes longer or fails "
        "is tried again; the other pipelines run meanwhile.",
    )
    clock_offset_seconds: float = option(
        "ESCLUSA_CLOCK_OFFSET_SECONDS",
        0.0,
        help="Shifts the time of store and engine, for tests.",
    )
    auto_migrate: bool = option(
        "ESCLUSA_AUTO_MIGRATE",
        True,
        help="Whether run, worker and serve migrate the schema when they start.",
    )
    wake_secret: SecretStr | None = option(
        "ESCLUSA_WAKE_SECRET",
        None,
        secret=True,
        help="Signs the signals that POST /webhooks/wake accepts; without it all are refused.",
    )
    alert_webhook: SecretStr | None = option(
        "ESCLUSA_ALERT_WEBHOOK",
        None,
        secret=True,
        help="The URL to which alerts are posted as JSON.",
    )
    alert_urls: tuple[SecretStr, ...] = option(
        "ESCLUSA_ALERT_URLS",
        (),
        secret=True,
        help="Where else alerts are sent, as URLs of apprise: mailto://, slack://, msteams://, "
        "tgram:// and others, separated by commas. Needs the extra esclusa[apprise].",
    )
    alert_error_rate: float = option(
        "ESCLUSA_ALERT_ERROR_RATE",
        0.2,
        ge=0,
        le=1,
        help="The share of failed attempts above which an alert begins; 1 for none. A stage or "
        "cycle may have its own alert_rate.",
    )
    alert_min_attempts: int = option(
        "ESCLUSA_ALERT_MIN_ATTEMPTS",
        5,
        ge=1,
        help="The fewest attempts of which that share is taken. A stage or cycle may have its own "
        "alert_min.",
    )
    alert_backlog_seconds: float = option(
        "ESCLUSA_ALERT_BACKLOG_SECONDS",
        3600.0,
        ge=0,
        help="How long a record may be due before an alert begins; 0 for none. A stage may have "
        "its own alert_backlog.",
    )
    alert_budget_share: float = option(
        "ESCLUSA_ALERT_BUDGET_SHARE",
        0.5,
        ge=0,
        help="The used share of a budget from which on an alert begins if the rest will run out "
        "before the reset; more than 1 for none. A stage may have its own alert_budget.",
    )
    keep_history_days: float = option(
        "ESCLUSA_KEEP_HISTORY_DAYS",
        365.0,
        ge=0,
        help="How long the moves of records are kept; 0 for ever. On Firestore the last moves of "
        "a record stay.",
    )
    keep_dead_letters_days: float = option(
        "ESCLUSA_KEEP_DEAD_LETTERS_DAYS",
        180.0,
        ge=0,
        help="How long dead letters are kept after they were closed; 0 for ever.",
    )
    keep_audit_days: float = option(
        "ESCLUSA_KEEP_AUDIT_DAYS",
        730.0,
        ge=0,
        help="How long it is kept what operators did; 0 for ever.",
    )
    alert_no_worker_seconds: float = option(
        "ESCLUSA_ALERT_NO_WORKER_SECONDS",
        300.0,
        ge=0,
        help="How long work may be due without a worker before an alert begins; 0 for none.",
    )
    alert_silence_seconds: float = option(
        "ESCLUSA_ALERT_SILENCE_SECONDS",
        0.0,
        ge=0,
        le=10 * 86400,
        help="How long no record may go through a stage before an alert begins; 0 for none. A "
        "stage may have its own alert_silence.",
    )
    alert_dead_letters: int = option(
        "ESCLUSA_ALERT_DEAD_LETTERS",
        100,
        ge=0,
        help="How many open dead letters of one kind begin an alert; 0 for none.",
    )
    publish: str | None = option(
        "ESCLUSA_PUBLISH",
        None,
        help="Where messages of the outbox are published: pubsub://project. If not set: to Pub/Sub "
        "if dead letters have a topic projects/…/topics/…, otherwise they wait in the outbox.",
    )
    tick_seconds: float = option(
        "ESCLUSA_TICK_SECONDS",
        50.0,
        ge=1,
        le=3500,
        help="The longest time that POST /tick works, if the call does not set one.",
    )
    tick_service_account: str | None = option(
        "ESCLUSA_TICK_SERVICE_ACCOUNT",
        None,
        help="The service account whose OIDC tokens may call POST /tick; required with the "
        "audience.",
    )
    tick_audience: tuple[str, ...] = option(
        "ESCLUSA_TICK_AUDIENCE",
        (),
        help="Audiences of the OIDC tokens with which Cloud Scheduler may call POST /tick, usually "
        "the service's URL. API tokens work as well.",
    )
    oidc_certs_url: str = option(
        "ESCLUSA_OIDC_CERTS_URL",
        "https://www.googleapis.com/oauth2/v3/certs",
        help="The URL of the keys of the OIDC tokens' issuer.",
    )
    google_project: str | None = option(
        "ESCLUSA_GOOGLE_PROJECT",
        None,
        help="The project in the trace names of log lines, for Cloud Logging; by default "
        "GOOGLE_CLOUD_PROJECT.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = option(
        "ESCLUSA_LOG_LEVEL", "info", help="The lowest level that is logged."
    )
    log_format: Literal["auto", "json", "text"] = option(
        "ESCLUSA_LOG_FORMAT",
        "auto",
        help="The format of log lines; auto is text on a terminal and JSON elsewhere.",
    )
    store_wait_seconds: float = option(
        "ESCLUSA_STORE_WAIT_SECONDS",
        60.0,
        ge=0,
        help="How long run and tick wait at their start for a store that is not ready: it refuses "
        "connections, is starting, or has no free connection. worker and serve wait without limit.",
    )
    firestore_adopt_seconds: float = option(
        "ESCLUSA_FIRESTORE_ADOPT_SECONDS",
        60.0,
        ge=0,
        help="How often workers look for Firestore documents that other programs wrote without "
        "tracking fields, besides the start of a run; 0: only 'esclusa migrate' adopts them. Each "
        "look counts the collection twice: 1 read per 500 documents.",
    )
    postgres_pool_size: int = option(
        "ESCLUSA_POSTGRES_POOL_SIZE",
        10,
        ge=2,
        le=500,
        help="Connections to PostgreSQL per process.",
    )
    postgres_statement_cache_size: int = option(
        "ESCLUSA_POSTGRES_STATEMENT_CACHE_SIZE",
        100,
        ge=0,
        help="Prepared statements per connection; set 0 behind PgBouncer.",
    )

    read_store: str | None = option(
        "ESCLUSA_READ_STORE",
        None,
        help="A replica of the PostgreSQL store, postgresql://user:password@host/database, from "
        "which lists and counts of the console, the API and commands are read.",
    )
    read_store_lag_seconds: float = option(
        "ESCLUSA_READ_STORE_LAG_SECONDS",
        10.0,
        ge=0,
        help="How far the replica may be behind; beyond that the primary is read.",
    )
    postgres_profile: Literal["native", "portable"] = option(
        "ESCLUSA_POSTGRES_PROFILE",
        "native",
        help="portable: use no ctid, LISTEN/NOTIFY, advisory lock or schema change in a "
        "transaction, which other databases with PostgreSQL's protocol lack. It is slower.",
    )
    postgres_schema: str = option(
        "ESCLUSA_POSTGRES_SCHEMA",
        "esclusa",
        pattern="^[a-z_][a-z0-9_]{0,54}$",
        help="The PostgreSQL schema of Esclusa's own tables. Installations that share a database "
        "need different ones.",
    )

    tables: Annotated[dict[str, Any], _AsIs] = option(
        "ESCLUSA_TABLES",
        {},
        help="Maps the records of a pipeline onto existing tables, by their declared table: "
        "[tables.notification_deliveries] in the file, JSON in the environment. Keys: table, id, "
        "columns, track, attach, database_id, insert, fill, notify and abandoned_after.",
    )

    # The pipelines, each with its own settings.
    plans: Annotated[tuple[Plan, ...], _AsIs] = ()
    # The file that was read.
    config: Path | None = None
    # Where each value that was set comes from, by the setting (`media.timeout_seconds`).
    sources: dict[str, str] = {}
    # Unknown names in the environment that look like settings, each with a suggestion.
    unknown: tuple[str, ...] = ()

    @field_validator("log_level", "log_format", "postgres_profile", mode="before")
    @classmethod
    def _lower(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value

    @field_validator("tables", mode="before")
    @classmethod
    def _read_tables(cls, written: Any) -> Any:
        try:
            return json.loads(written) if isinstance(written, str) else written
        except ValueError as error:
            raise ValueError(f"it is not JSON: {error}") from error

    _check_store = field_validator("store")(check_url)

    @field_validator("read_store")
    @classmethod
    def _check_read_store(cls, url: str | None, info: ValidationInfo) -> str | None:
        postgres = ("postgresql://", "postgres://")
        if url is not None and not (
            check_url(url).startswith(postgres)
            and str(info.data.get("store", "")).startswith(postgres)
        ):
            raise ValueError("a replica to read from is PostgreSQL, as ESCLUSA_STORE must be")
        return url

    @field_validator("postgres_schema")
    @classmethod
    def _check_schema(cls, name: str) -> str:
        if name.startswith("pg_") or name in ("public", "archive", "information_schema"):
            raise ValueError("Esclusa's own tables need a schema of their own, such as esclusa")
        return name

    @field_validator("publish")
    @classmethod
    def _check_publish(cls, url: str | None) -> str | None:
        if url is not None and not re.fullmatch(r"pubsub://[a-z][a-z0-9:.-]*[a-z0-9]/?", url):
            raise ValueError("messages are published to pubsub://project")
        return url

    @field_validator("tick_audience")
    @classmethod
    def _check_audience(cls, audiences: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if audiences and not info.data.get("tick_service_account"):
            raise ValueError(
                "set ESCLUSA_TICK_SERVICE_ACCOUNT too: anybody can get a token for an audience"
            )
        return audiences

    @field_validator("cors_origins")
    @classmethod
    def _check_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if not re.fullmatch(r"\*|https?://[^/?#@\s]+", origin):
                raise ValueError(f"{origin!r:.80} is no origin such as https://app.example.cl")
        return origins

    @field_validator("alert_webhook")
    @classmethod
    def _check_webhook(cls, url: SecretStr | None) -> SecretStr | None:
        parts = urlsplit("" if url is None else url.get_secret_value())
        if url is not None and (parts.scheme not in ("http", "https") or not parts.hostname):
            raise ValueError("an alert webhook is a URL that begins with https:// or http://")
        return url

    _read_tokens = field_validator("api_tokens", mode="before")(read_tokens)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics to which the pipelines publish their dead letters."""
        stages = [stage for plan in self.plans for stage in plan.stages]
        return tuple(sorted({s.dead_letter_topic for s in stages if s.dead_letter_topic}))


SYSTEM_OPTIONS: tuple[Option, ...] = tuple(options_of(Settings))
