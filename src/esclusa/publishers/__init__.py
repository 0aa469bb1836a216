"""Publishers of the outbox, chosen by URL."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from importlib.util import find_spec

from esclusa.model.errors import SettingsError
from esclusa.ports.publisher import Publisher

__all__ = ["open_publisher", "publisher_for"]

_TOPIC = re.compile(r"projects/([^/]+)/topics/[^/]+\Z")


def publisher_for(
    url: str | None, topics: Iterable[str], *, environ: Mapping[str, str] = os.environ
) -> Publisher | None:
    """The publisher for ``url``.

    Without ``url`` it is Pub/Sub if the extra is installed and one of the topics is a full name
    (``projects/p/topics/t``); otherwise None, and messages wait in the outbox.
    """
    if url is not None:
        return open_publisher(url, environ=environ)
    named = next((found[1] for found in map(_TOPIC.match, topics) if found), None)
    if named is None or not _installed():
        return None
    from esclusa.publishers.pubsub import PubSubPublisher  # noqa: PLC0415

    return PubSubPublisher(named, emulator=environ.get("PUBSUB_EMULATOR_HOST") or None, lazy=True)


def _installed() -> bool:
    try:
        return find_spec("google.pubsub_v1") is not None
    except ModuleNotFoundError:
        return False


def open_publisher(url: str, *, environ: Mapping[str, str] = os.environ) -> Publisher:
    """The publisher for ``url``, not opened yet. Raises SettingsError."""
    scheme, _, project = url.partition("://")
    if scheme != "pubsub" or not project.strip("/") or "/" in project.strip("/"):
        raise SettingsError(
            "settings", [f"ESCLUSA_PUBLISH: {url!r} is not a publisher; write pubsub://project"]
        )
    from esclusa.publishers.pubsub import PubSubPublisher  # noqa: PLC0415

    return PubSubPublisher(project.strip("/"), emulator=environ.get("PUBSUB_EMULATOR_HOST") or None)
