"""The admin: an action that retries what failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from esclusa.integrations.django.system import opened
from esclusa.model.errors import EsclusaError
from esclusa.model.record import Record

Action = Callable[[Any, HttpRequest, QuerySet[Any]], None]


def retry_action(record: type[Record], *, description: str = "Retry failed records") -> Action:
    """An action of a ModelAdmin: ``actions = [retry_action(OrderRecord)]``.

    It moves the selected records that a stage gave up back to where the stage takes them. Others
    stay. History and audit show who did it. Users need the permission to change the model.
    """

    @admin.action(description=description, permissions=["change"])
    def retry(model_admin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        ids = [str(key) for key in queryset.values_list("pk", flat=True)]
        who = f"django:{request.user.get_username()}"
        try:
            acted = opened().operate(
                who,
                lambda o: o.retry(record.kind.table, ids=ids, reason="retried in the admin"),
            )
        except EsclusaError as error:
            model_admin.message_user(request, str(error), messages.ERROR)
            return
        left = len(ids) - acted.moved
        text = f"{acted.moved} of {len(ids)} sent back to be handled"
        text += f"; {left} had not failed" if left else ""
        model_admin.message_user(request, text, messages.SUCCESS if acted.moved else messages.INFO)

    retry.__name__ = f"retry_{record.kind.table}"
    action: Action = retry
    return action
