"""Figures of a pipeline's own for Prometheus, read from the store when metrics are requested."""

from __future__ import annotations

from collections.abc import Mapping

from esclusa.model.value import set_fields, value


@value
class Gauge:
    """One figure: ``Gauge("folders", 3, "Folders, by month.", month="2026-11")``.

    ``/metrics`` shows it as ``esclusa_PIPELINE_NAME``. Figures of one name have the same labels.
    """

    name: str
    value: float
    about: str
    labels: Mapping[str, str]

    def __init__(self, name: str, value: float, about: str, **labels: str) -> None:
        set_fields(self, name=name, value=value, about=about, labels=labels)
