"""The settings of the pipeline ``tenders``."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import BaseModel, SecretStr, ValidationInfo, field_validator

from esclusa import Backoff, Budget, EsclusaError, Rate, Window, cron, option
from esclusa.pipelines.tenders.rates import Rates, parse_rates

CHILE = "America/Santiago"
# Deliveries that are claimed and settled together: one request at Expo's usual pace.
BATCH = 60
# Seconds after its turn in the pace until a request must have reached Expo.
EXPO_LATE = 0.08


class TendersSettings(BaseModel):
    """Credentials and addresses, schedules, and how long data is kept."""

    ticket: SecretStr | None = option(
        "CHILECOMPRA_TICKET",
        None,
        secret=True,
        help="The ticket of the API; without it ingest is blocked.",
    )
    api_url: str = option(
        "CHILECOMPRA_API_URL",
        "https://api.mercadopublico.cl",
        help="The origin of the API; /servicios/v1/publico/… is appended.",
    )
    site_url: str = option(
        "CHILECOMPRA_SITE_URL",
        "https://www.mercadopublico.cl",
        help="The origin of the public site; /BuscarLicitacion/… is appended.",
    )
    site_pages: int = option(
        "CHILECOMPRA_SITE_PAGES",
        20,
        ge=1,
        le=500,
        help="Pages of the public site that a run reads, of 10 tenders each.",
    )
    site_timeout_seconds: float = option(
        "CHILECOMPRA_SITE_TIMEOUT_SECONDS",
        15.0,
        gt=0,
        help="Timeout of a page of the public site, in seconds.",
    )
    pace_seconds: float = option(
        "CHILECOMPRA_PACE_SECONDS",
        2.0,
        ge=0,
        le=600,
        help="Seconds between two calls to the API; retries wait multiples of it.",
    )
    daily_calls: int = option(
        "CHILECOMPRA_DAILY_CALLS",
        10_000,
        ge=1,
        help="Calls to the API per day in Chile's time zone, of all processes together.",
    )
    api_timeout_seconds: float = option(
        "CHILECOMPRA_TIMEOUT_SECONDS",
        60.0,
        gt=0,
        help="Timeout of a call to the API, in seconds.",
    )

    rates_text: str = option(
        "TENDERS_RATES",
        "",
        help="Pesos for one unit of each currency, to compare amounts: UTM=69542, UF=39485.65, "
        "USD=952, EUR=1030. An amount in another currency passes every range.",
    )

    refresh_minutes: float = option(
        "TENDERS_REFRESH_MINUTES",
        60.0,
        gt=0,
        help="How often known tenders are compared with the API's list of open tenders.",
    )
    refresh_calls: int = option(
        "TENDERS_REFRESH_CALLS",
        100,
        ge=0,
        help="The most known tenders that are read again each time.",
    )
    closing_soon_hours: float = option(
        "TENDERS_CLOSING_SOON_HOURS",
        48.0,
        gt=0,
        le=24 * 60,
        help="How long before its closing a tender is announced to devices that want closing_soon.",
    )
    silence_hours: float = option(
        "TENDERS_SILENCE_HOURS",
        6.0,
        ge=0,
        le=1000,
        help="Hours without a new tender, Monday to Friday from 8 to 20 h in Chile, after which an "
        "alert begins. 0: none does.",
    )

    expo_url: str = option(
        "EXPO_API_URL",
        "https://exp.host",
        help="The origin of Expo; /--/api/v2/push/… is appended.",
    )
    expo_token: SecretStr | None = option(
        "EXPO_ACCESS_TOKEN",
        None,
        secret=True,
        help="The access token, if the account has enhanced push security.",
    )
    expo_timeout_seconds: float = option(
        "EXPO_TIMEOUT_SECONDS", 30.0, gt=0, help="Timeout of a call to Expo, in seconds."
    )
    expo_concurrency: int = option(
        "EXPO_CONCURRENCY", 6, ge=1, le=64, help="Concurrent calls to Expo, per process."
    )

    expo_rate: int = option(
        "EXPO_RATE_PER_SECOND",
        600,
        ge=1,
        le=100_000,
        help="Messages per second that Expo accepts of the project, of all processes together.",
    )
    expo_channel: str | None = option(
        "EXPO_CHANNEL_ID", None, help="The Android channel of messages. Default: the app's own."
    )

    worker_interval_minutes: float = option(
        "WORKER_INTERVAL_MINUTES", 2.0, gt=0, help="How often ingest runs."
    )
    dispatch_interval_minutes: float = option(
        "DISPATCH_INTERVAL_MINUTES", 1.0, gt=0, help="How often dispatch runs."
    )
    receipt_interval_minutes: float = option(
        "RECEIPT_INTERVAL_MINUTES", 1.0, gt=0, help="How often receipts are read."
    )
    cleanup_cron: str = option("CLEANUP_CRON", "17 3 * * *", help="When old data is archived.")
    archive_export_cron: str = option(
        "ARCHIVE_EXPORT_CRON", "47 3 * * *", help="When the archive is exported."
    )
    timezone: str = option(
        "TENDERS_TIMEZONE", CHILE, help="The time zone of the two cron settings."
    )
    minute_seconds: float = option(
        "TENDERS_MINUTE_SECONDS",
        60.0,
        gt=0,
        help="Seconds in a minute of the send retries (1, 2, 4, 8, 16, 32, 60), of a ticket's age "
        "(15) and of a receipt's day. Lower it in tests.",
    )

    publisher: str = option(
        "TENDERS_PUBLISHER",
        "Esclusa",
        min_length=1,
        help="Who publishes the OCDS releases, as they name it.",
    )
    ocid_prefix: str = option(
        "TENDERS_OCID_PREFIX",
        "ocds-70d2nz",
        pattern=r"^[A-Za-z0-9-]+$",
        help="The prefix of OCDS identifiers; a tender's code follows. Default: ChileCompra's own.",
    )

    lock_seconds: float = option(
        "TENDERS_LOCK_SECONDS",
        900.0,
        ge=0,
        help="How long a delivery that another program's worker has locked is left to it.",
    )
    baseline: bool = option(
        "TENDERS_BASELINE",
        False,
        help="Whether ingest registers what is listed without announcing it. Set it for the first "
        "runs, or run `esclusa tenders baseline` once.",
    )

    open_to_apps: bool = option(
        "TENDERS_OPEN_TO_APPS",
        False,
        help="Whether apps need no API token: anybody may register a device, read tenders, and "
        "change a device by its credential, or by its id while it has none.",
    )

    hot_months: int = option(
        "HOT_MONTHS", 12, ge=1, le=1200, help="Months until a tender is archived."
    )
    delivery_retention_days: int = option(
        "DELIVERY_RETENTION_DAYS",
        90,
        ge=0,
        le=36_500,
        help="Days until a completed delivery is archived.",
    )
    archive_bucket: str | None = option(
        "ARCHIVE_BUCKET",
        None,
        help="The S3 bucket of the exports. Default: the artifact store.",
    )
    archive_region: str | None = option("ARCHIVE_REGION", None, help="The bucket's region.")
    archive_endpoint: str | None = option(
        "ARCHIVE_ENDPOINT",
        None,
        help="The address of an S3-compatible server. Default: Amazon.",
    )
    archive_drop: bool = option(
        "ARCHIVE_DROP",
        False,
        help="Whether archive-export also deletes exported rows that are past their date.",
    )
    archive_drop_after_days: int = option(
        "ARCHIVE_DROP_AFTER_DAYS",
        30,
        ge=0,
        le=36_500,
        help="Days between a verified export and the deletion of its rows.",
    )

    @field_validator("api_url", "site_url", "expo_url", "archive_endpoint")
    @classmethod
    def _origin(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        if (
            parts.scheme not in ("http", "https")
            or not parts.hostname
            or parts.query
            or parts.fragment
            or "@" in parts.netloc
        ):
            raise ValueError(
                "must be http(s)://host[:port][/prefix], without a user, query or fragment"
            )
        return url.rstrip("/")

    @field_validator(
        "archive_bucket",
        "archive_region",
        "archive_endpoint",
        "ticket",
        "expo_token",
        "expo_channel",
        mode="before",
    )
    @classmethod
    def _blank(cls, value: object) -> object:
        return (value.strip() or None) if isinstance(value, str) else value

    @field_validator("rates_text")
    @classmethod
    def _rates(cls, text: str) -> str:
        parse_rates(text)
        return text

    @field_validator("cleanup_cron", "archive_export_cron", "timezone")
    @classmethod
    def _schedule(cls, text: str, info: ValidationInfo) -> str:
        line, zone = ("0 0 * * *", text) if info.field_name == "timezone" else (text, "UTC")
        try:
            cron(line, zone)
        except EsclusaError as error:
            raise ValueError("; ".join(getattr(error, "faults", (str(error),)))) from None
        return text

    @property
    def rates(self) -> Rates:
        """Pesos for one unit of each currency."""
        return parse_rates(self.rates_text)

    @property
    def api_budget(self) -> Budget:
        """The calls that the ticket allows per day in Chile's time zone."""
        return Budget("chilecompra", Window("day", self.daily_calls, CHILE))

    @property
    def expo_request(self) -> int:
        """The messages of a request: a tenth of a second's, and at most ``BATCH``."""
        return max(1, min(BATCH, self.expo_rate // 10))

    @property
    def expo_budget(self) -> Budget:
        """The pace of messages: one request at a time, which may be late on its way."""
        burst = min(self.expo_rate, self.expo_request)
        return Budget("expo", Rate(self.expo_rate, "second", burst=burst, late=EXPO_LATE))

    @property
    def send_retry(self) -> Backoff:
        """Waits of 1, 2, 4, 8, 16, 32 and 60 minutes; the eighth attempt is the last."""
        return Backoff(
            tries=8, base=self.minute_seconds, factor=2, cap=60 * self.minute_seconds, jitter=0
        )

    @property
    def receipt_retry(self) -> Backoff:
        """No limit of attempts: a delivery without a receipt ends by its age."""
        return Backoff(
            tries=None, base=self.minute_seconds, factor=2, cap=15 * self.minute_seconds, jitter=0
        )

    @property
    def ticket_age(self) -> float:
        """Seconds from the send to the first request for the receipt."""
        return 15 * self.minute_seconds

    @property
    def receipt_life(self) -> float:
        """Seconds that Expo keeps a receipt."""
        return 24 * 60 * self.minute_seconds
