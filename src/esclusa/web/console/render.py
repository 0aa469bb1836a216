"""Templates, and the functions and filters that they use: addresses, times, numbers, charts."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PrefixLoader, StrictUndefined
from markupsafe import Markup, escape

from esclusa.model.results import FAILED
from esclusa.observability import redact
from esclusa.web.console import catalog, diff, zones
from esclusa.web.console.catalog import gettext

FOLDER: Final = Path(__file__).parent
# Static files of these types are served.
MEDIA_TYPES: Final = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
# The Content-Security-Policy of every page.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# The most bars in the trend of a stage.
BARS: Final = 120

# The sub-path under which the page is served.
prefix: ContextVar[str] = ContextVar("prefix", default="")
# The time at which the page is made, by the store's clock.
now: ContextVar[datetime] = ContextVar("now")


def url(*parts: str, **params: Any) -> str:
    """An address of this server. Parts are escaped; empty parameters are left out."""
    return prefix.get() + path(*parts, **params)


def path(*parts: str, **params: Any) -> str:
    """As ``url``, without the sub-path under which the page is served."""
    whole = "/" + "/".join(quote(part, safe="~:@!$'()*,;=-._") for part in parts)
    pairs = [
        (name.rstrip("_"), each)
        for name, value in params.items()
        for each in (value if isinstance(value, list | tuple) else [value])
    ]
    given = query([(name, value) for name, value in pairs if value not in (None, "")])
    return f"{whole}?{given}" if given else whole


def query(params: Iterable[tuple[str, Any]]) -> str:
    """Parameters as an address has them; ids, times and lists stay readable in it."""
    return urlencode(list(params), safe=":,@/")


def fragment(id: str) -> str:
    """The part of an address after ``#`` that leads to the element with this id."""
    return quote(id, safe="/:@,=~!$&'()*+;?-._")


def duration(seconds: float | None) -> str:
    """A duration in one or two units: 350 ms, 42 s, 5 min, 3 h 20 min, 4 d."""
    if seconds is None:
        return "—"
    seconds = abs(seconds)
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    if seconds < 90:
        tenths = round(seconds, 1)
        return f"{catalog.number(tenths) if tenths < 10 and tenths % 1 else round(seconds)} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    if seconds < 48 * 3600:
        hours, rest = divmod(round(seconds / 60), 60)
        return f"{hours} h {rest} min" if rest and hours < 10 else f"{hours} h"
    return f"{round(seconds / 86400)} d"


def ago(when: datetime) -> str:
    """A time relative to now: "5 min ago" or "in 5 min"."""
    seconds = (when - now.get()).total_seconds()
    if abs(seconds) < 1.5:
        return gettext("now")
    return gettext("in {time}" if seconds > 0 else "{time} ago", time=duration(seconds))


def full(when: datetime) -> str:
    """Date and time in the zone of the page, which is named."""
    return f"{zones.local(when):%Y-%m-%d %H:%M:%S} {zones.name()}"


def when(value: Any) -> Markup:
    """A relative time; the full time is in its title."""
    if value is None:
        return Markup('<span class="none">—</span>')
    value = as_time(value)
    return Markup(  # noqa: S704 - escaped
        f'<time datetime="{value.isoformat()}" title="{full(value)}">{escape(ago(value))}</time>'
    )


def clock(value: Any) -> Markup:
    """Date and time in the zone of the page; its title has the zone and the relative time."""
    if value is None:
        return Markup('<span class="none">—</span>')
    value = as_time(value)
    return Markup(  # noqa: S704 - escaped
        f'<time class="clock" datetime="{value.isoformat()}" title="{full(value)},'
        f' {escape(ago(value))}">{zones.local(value):%Y-%m-%d %H:%M:%S}</time>'
    )


def as_time(value: Any) -> datetime:
    """A time, or the time of an ISO text."""
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


def parsed_time(text: Any) -> datetime | None:
    """The time that a text is, as ``str(time)`` writes it; None if it is something else."""
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return moment if str(moment) == text and moment.tzinfo is not None else None


def count(value: int, exact: bool = True) -> str:
    """A number; ``+`` marks an estimate or a lower bound."""
    return catalog.number(value) if exact else f"{catalog.number(value)}+"


def percent(share: float | None) -> str:
    """A share between 0 and 1 in percent."""
    if share is None:
        return "—"
    small = 0 < share < 0.1
    return f"{catalog.number(round(share * 100, 1)) if small else round(share * 100)} %"


def size(value: int) -> str:
    """A number of bytes in the largest fitting unit."""
    number, units = float(value), ["B", "kB", "MB", "GB", "TB"]
    while number >= 1000 and len(units) > 1:
        number, units = number / 1000, units[1:]
    return f"{catalog.number(round(number, 1)) if units[0] != 'B' else value} {units[0]}"


def short(text: str, length: int) -> str:
    """The text with its middle left out if it is longer: ids often differ only at the end."""
    tail = length * 2 // 5
    return text if len(text) <= length else f"{text[: length - tail - 1]}…{text[-tail:]}"


def breakable(name: str) -> Markup:
    """A name that may wrap after its underscores."""
    return Markup("_<wbr>").join(name.split("_"))


def schedule(text: str) -> str:
    """A schedule in the language of the page."""
    interval = text.removeprefix("every ")
    return gettext(text) if interval == text else gettext("every {time}", time=interval)


def pretty(value: Any) -> str:
    """Indented JSON."""
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


# The values with secrets masked.
masked = redact.fields


def state(name: str, role: str = "resting") -> Markup:
    """A state as a badge. A mark shows its role, so that color is not needed to read it."""
    role = str(escape(role))
    return Markup(  # noqa: S704 - escaped
        f'<span class="state {role}"><svg class="mark" aria-hidden="true">'
        f'<use href="#mark-{role}"/></svg>{escape(name)}</span>'
    )


def sparkline(good: Sequence[float], bad: Sequence[float], width: int, height: int) -> Markup:
    """One bar for each pair of numbers; the hatched lower part is ``bad``."""
    if not good:
        return Markup("")
    scale = (height - 2) / max(1, *(a + b for a, b in zip(good, bad, strict=True)))
    step = width / len(good)
    bars = []
    for index, (upper, lower) in enumerate(zip(good, bad, strict=True)):
        for amount, base, kind in ((upper, lower, "good"), (lower, 0, "bad")):
            if amount:
                tall = max(1.2, amount * scale)
                bars.append(
                    f'<rect class="{kind}" x="{index * step:.1f}"'
                    f' y="{height - tall - base * scale:.1f}"'
                    f' width="{max(0.8, step - 0.7):.1f}" height="{tall:.1f}"/>'
                )
    return Markup(  # noqa: S704 - numbers only
        f'<svg class="spark" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' preserveAspectRatio="none" aria-hidden="true">'
        f'<line x1="0" y1="{height - 0.5}" x2="{width}" y2="{height - 0.5}"/>{"".join(bars)}</svg>'
    )


def spark(series: dict[str, Any]) -> Markup:
    """The trend of a stage: attempts, with the failed ones hatched."""
    step = max(1, series["minutes"] // BARS)
    failed = [sum(each) for each in zip(*(series[name] for name in FAILED), strict=True)]
    good, bad = (
        [sum(values[i : i + step]) for i in range(0, series["minutes"], step)]
        for values in (series["moved"], failed)
    )
    return sparkline(good, bad, 480, 56)


def trend(moved: Sequence[int], failed: Sequence[int]) -> Markup:
    """The trend of a stage in a row of a table."""
    step = -(-len(moved) // 48)
    good, bad = (
        [sum(values[i : i + step]) for i in range(0, len(values), step)]
        for values in (moved, failed)
    )
    return sparkline(good, bad, 120, 24)


def bar(share: float, projected: float | None = None, role: str = "") -> Markup:
    """How full something is; a line marks the projected share."""
    filled = max(0.0, min(1.0, share)) * 100
    line = ""
    if projected is not None:
        x = f"{min(projected, 1) * 100:.2f}"
        line = f'<line class="projected" x1="{x}" x2="{x}" y1="0" y2="10"/>'
    return Markup(  # noqa: S704 - numbers only
        f'<svg class="bar {escape(role)}" viewBox="0 0 100 10" preserveAspectRatio="none"'
        f' aria-hidden="true"><rect class="track" width="100" height="10"/>'
        f'<rect class="fill" width="{filled:.2f}" height="10"/>{line}</svg>'
    )


@lru_cache(maxsize=8)
def environment(folders: tuple[tuple[str, Path], ...] = ()) -> Environment:
    """The templates of the console, and those of each pipeline's folder as ``pipeline/name``.

    They are cached: servers of one process share the compiled templates.
    """
    own = PrefixLoader({pipeline: FileSystemLoader(folder) for pipeline, folder in folders})
    made = Environment(
        loader=ChoiceLoader([FileSystemLoader(FOLDER / "templates"), own]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: "" if value is None else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {
        "_": gettext,
        "ngettext": catalog.ngettext,
        "in_language": catalog.in_language,
        "languages": catalog.LANGUAGES,
        "url": url,
        "prefix": prefix.get,
        "state": state,
        "spark": spark,
        "trend": trend,
        "zone_name": zones.name,
        "bar": bar,
    }
    made.filters |= {
        "when": when,
        "clock": clock,
        "duration": duration,
        "num": catalog.number,
        "count": count,
        "percent": percent,
        "size": size,
        "pretty": pretty,
        "schedule": schedule,
        "short": short,
        "diff": diff.rows,
        "shell": shlex.quote,
        "breakable": breakable,
        "fragment": fragment,
        "ago": lambda value: ago(as_time(value)),
        "full": lambda value: full(as_time(value)),
    }
    return made


def compile_templates(templates: Environment) -> None:
    """Compile every template, so that the first page does not wait for it."""
    for name in templates.list_templates():
        templates.get_template(name)


@lru_cache(maxsize=64)
def file_content(file: Path) -> bytes:
    """A static file; it is read once."""
    return file.read_bytes()


@lru_cache(maxsize=64)
def file_version(file: Path) -> str:
    """A short hash of a static file: its address changes when the file does."""
    return hashlib.sha256(file_content(file)).hexdigest()[:10]
