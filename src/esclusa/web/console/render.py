"""From views to pages: the templates, and the words and shapes that they use."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from esclusa.observability import redact
from esclusa.web.console import catalog
from esclusa.web.console.catalog import gettext

HERE: Final = Path(__file__).parent
STATIC: Final = {
    "console.css": "text/css",
    "console.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)

place: ContextVar[str] = ContextVar("place", default="")
"""The sub-path that the page being made is served under."""
moment: ContextVar[datetime] = ContextVar("moment")
"""The time at which the page is made, by the store's clock."""


def url(*parts: str, **params: Any) -> str:
    """An address of ours: parts are escaped one by one, parameters left out where they say nothing."""
    return place.get() + path(*parts, **params)


def path(*parts: str, **params: Any) -> str:
    """The same below the place that the page is served under."""
    whole = "/" + "/".join(quote(part, safe="~:@!$'()*,;=-._") for part in parts)
    said = [
        (name.rstrip("_"), v)
        for name, value in params.items()
        for v in (value if isinstance(value, list | tuple) else [value])
    ]
    asked = urlencode([(name, value) for name, value in said if value not in (None, "")])
    return f"{whole}?{asked}" if asked else whole


def _version(name: str) -> str:
    return hashlib.sha256((HERE / "static" / name).read_bytes()).hexdigest()[:10]


def static(name: str) -> str:
    return f"{place.get()}/console/static/{name}?v={_VERSIONS[name]}"


_VERSIONS = {name: _version(name) for name in STATIC}


def duration(seconds: float | None) -> str:
    """How long, in one or two units: 350 ms, 42 s, 5 min, 3 h 20 min, 4 d."""
    if seconds is None:
        return "—"
    seconds = abs(seconds)
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    if seconds < 90:
        return f"{catalog.number(round(seconds, 1)) if seconds < 9.95 and round(seconds, 1) % 1 else round(seconds)} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    if seconds < 48 * 3600:
        hours, rest = divmod(round(seconds / 60), 60)
        return f"{hours} h {rest} min" if rest and hours < 10 else f"{hours} h"
    return f"{round(seconds / 86400)} d"


def ago(when: datetime) -> str:
    """How long ago, or in how long."""
    seconds = (when - moment.get()).total_seconds()
    if abs(seconds) < 1.5:
        return gettext("now")
    return (
        gettext("in {time}", time=duration(seconds))
        if seconds > 0
        else gettext("{time} ago", time=duration(seconds))
    )


def full(when: datetime) -> str:
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def when(value: Any) -> Markup:
    """A moment, told relatively, with the full time beside it for machines and for whoever points at it."""
    if value is None:
        return Markup('<span class="none">—</span>')
    value = as_moment(value)
    return Markup(  # noqa: S704 - escaped
        f'<time datetime="{value.isoformat()}" title="{full(value)}">{escape(ago(value))}</time>'
    )


def clock(value: Any) -> Markup:
    """A moment as date and time."""
    if value is None:
        return Markup('<span class="none">—</span>')
    value = as_moment(value)
    said = f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    return Markup(  # noqa: S704 - escaped
        f'<time class="clock" datetime="{value.isoformat()}" title="{escape(ago(value))}">{said}</time>'
    )


def as_moment(value: Any) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


def count(value: int, exact: bool = True) -> str:
    """A number; one that was not counted to its end says so."""
    return catalog.number(value) if exact else f"{catalog.number(value)}+"


def percent(share: float | None) -> str:
    return (
        "—"
        if share is None
        else f"{catalog.number(round(share * 100, 1)) if share < 0.1 and share else round(share * 100)} %"
    )


def size(value: int) -> str:
    number, units = float(value), ["B", "kB", "MB", "GB", "TB"]
    while number >= 1000 and len(units) > 1:
        number, units = number / 1000, units[1:]
    return f"{catalog.number(round(number, 1)) if units[0] != 'B' else value} {units[0]}"


def short(text: str, length: int) -> str:
    """A text that fits: what is left out is in the middle, for ids that begin alike are told apart by their end."""
    tail = length * 2 // 5
    return text if len(text) <= length else f"{text[: length - tail - 1]}…{text[-tail:]}"


def breakable(name: str) -> Markup:
    """A name that a narrow page may break behind its underscores."""
    return Markup("_<wbr>").join(name.split("_"))


def schedule(text: str) -> str:
    """A schedule in the page's language."""
    return (
        gettext("every {time}", time=text.removeprefix("every "))
        if text.startswith("every ")
        else gettext(text)
    )


def pretty(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


def masked(values: dict[str, Any]) -> dict[str, Any]:
    return redact.fields(values)


def state(name: str, role: str = "") -> Markup:
    """A state as a badge: its role is told by a mark, not by colour alone."""
    role = str(escape(role or "rest"))
    return Markup(  # noqa: S704 - escaped
        f'<span class="state {role}"><svg class="mark" aria-hidden="true"><use href="#mark-{role}"/></svg>{escape(name)}</span>'
    )


def sparkline(
    values: Sequence[float], bad: Sequence[float] = (), width: int = 140, height: int = 28
) -> Markup:
    """Bars, one a minute; what failed is the hatched lower part."""
    if not values:
        return Markup("")
    top = max([*(v + (bad[i] if bad else 0) for i, v in enumerate(values)), 1])
    step = width / len(values)
    bars = []
    for index, value in enumerate(values):
        worse = bad[index] if bad else 0
        for amount, base, kind in ((value, worse, "good"), (worse, 0, "bad")):
            if amount:
                tall = max(1.2, amount / top * (height - 2))
                y = height - tall - (base / top * (height - 2) if base else 0)
                bars.append(
                    f'<rect class="{kind}" x="{index * step:.1f}" y="{y:.1f}" width="{max(0.8, step - 0.7):.1f}" height="{tall:.1f}"/>'
                )
    floor = f'<line x1="0" y1="{height - 0.5}" x2="{width}" y2="{height - 0.5}"/>'
    return Markup(  # noqa: S704 - numbers only
        f'<svg class="spark" viewBox="0 0 {width} {height}" width="{width}" height="{height}" preserveAspectRatio="none"'
        f' aria-hidden="true">{floor}{"".join(bars)}</svg>'
    )


def spark(series: dict[str, Any]) -> Markup:
    """The trend of a stage, at most 120 bars."""
    step = max(1, series["minutes"] // 120)
    good = [sum(series["moved"][i : i + step]) for i in range(0, series["minutes"], step)]
    failed = [a + b for a, b in zip(series["retried"], series["exhausted"], strict=True)]
    bad = [sum(failed[i : i + step]) for i in range(0, series["minutes"], step)]
    return sparkline(good, bad, 480, 56)


def bar(share: float, mark: float | None = None, role: str = "") -> Markup:
    """How full: a bar, and where it is headed."""
    full_width = max(0.0, min(1.0, share)) * 100
    target = (
        f'<line class="headed" x1="{min(mark, 1) * 100:.2f}" x2="{min(mark, 1) * 100:.2f}" y1="0" y2="10"/>'
        if mark is not None
        else ""
    )
    return Markup(  # noqa: S704 - numbers only
        f'<svg class="bar {escape(role)}" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="track" width="100" height="10"/><rect class="fill" width="{full_width:.2f}" height="10"/>{target}</svg>'
    )


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {
        "_": gettext, "ngettext": catalog.ngettext, "url": url, "static": static, "state": state, "spark": spark, "bar": bar,
        "place": place.get, "own": catalog.own,
        "languages": catalog.LANGUAGES,
    }  # fmt: skip
    made.filters |= {
        "when": when, "clock": clock, "duration": duration, "num": catalog.number, "count": count, "percent": percent, "size": size,
        "pretty": pretty, "schedule": schedule, "short": short, "breakable": breakable,
        "ago": lambda v: ago(as_moment(v)), "full": lambda v: full(as_moment(v)),
    }  # fmt: skip
    return made


_ENVIRONMENT = _environment()


def prepare() -> None:
    """Compile every template, so that no page has to wait for it."""
    for name in _ENVIRONMENT.list_templates():
        _ENVIRONMENT.get_template(name)


def page(template: str, **values: Any) -> str:
    return _ENVIRONMENT.get_template(template).render(**values)
