"""``manage.py esclusa …``: the command ``esclusa`` with Django's settings.

``manage.py esclusa worker`` runs the worker, ``manage.py esclusa migrate`` adds the tracking
columns, ``manage.py esclusa status`` and all other commands are as documented.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import BaseCommand

from esclusa.app import main
from esclusa.integrations.django.system import settings_of_host


class EsclusaCommand(BaseCommand):
    """Pass everything on to Esclusa's own command."""

    help = "Esclusa's command: worker, migrate, serve, status, … (manage.py esclusa --help)"
    requires_system_checks: Sequence[str] = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """Run the command; it ends the process with its exit code."""
        self.handle(arguments=argv[2:])

    def handle(self, *args: Any, **options: Any) -> None:
        """Run it with these ``arguments``."""
        for name, text in environment(settings_of_host()).items():
            os.environ.setdefault(name, text)
        sys.argv[0] = "esclusa"
        main(options["arguments"])


Command = EsclusaCommand  # the name that Django looks for


def environment(given: Mapping[str, Any]) -> dict[str, str]:
    """Django's settings of Esclusa as variables; those of the environment come before them."""
    return {f"ESCLUSA_{name.upper()}": _text(value) for name, value in given.items()}


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return json.dumps(value)
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
