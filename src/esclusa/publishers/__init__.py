"""Where messages of the outbox go, picked by URL."""

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
    """The publisher that ``url`` names; without one, Pub/Sub, if one of the topics that dead letters go to is a full name of its
    (``projects/p/topics/t``) and the extra is installed: such a topic says all there is to say. Else None, and messages wait."""
    if url is not None:
        return open_publisher(url, environ=environ)
    named = next((found[1] for found in map(_TOPIC.match, topics) if found), None)
    if named is None or not _installed():
        return None
    from esclusa.publishers.pubsub import PubSubPublisher  # noqa: PLC0415  # only what is used is loaded

    return PubSubPublisher(named, emulator=environ.get("PUBSUB_EMULATOR_HOST") or None, lazy=True)


def _installed() -> bool:
    try:
        return find_spec("google.pubsub_v1") is not None
    except ModuleNotFoundError:
        return False


def open_publisher(url: str, *, environ: Mapping[str, str] = os.environ) -> Publisher:
    """The publisher that ``url`` names, not yet opened. SettingsError, naming ESCLUSA_PUBLISH, if it names none."""
    scheme, _, project = url.partition("://")
    if scheme != "pubsub" or not project.strip("/") or "/" in project.strip("/"):
        raise SettingsError(
            "settings", [f"ESCLUSA_PUBLISH: {url!r} is no publisher; write pubsub://project"]
        )
    from esclusa.publishers.pubsub import PubSubPublisher  # noqa: PLC0415  # only what is used is loaded

    return PubSubPublisher(project.strip("/"), emulator=environ.get("PUBSUB_EMULATOR_HOST") or None)
