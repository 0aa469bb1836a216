"""The Django application: it brings the management command ``esclusa``."""

from __future__ import annotations

from django.apps import AppConfig


class EsclusaConfig(AppConfig):
    """Esclusa. It has no models and no migrations of Django's."""

    name = "esclusa.integrations.django"
    label = "esclusa"
    verbose_name = "Esclusa"
