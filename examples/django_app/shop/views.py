"""Orders are placed in a transaction; the worker sees those that are committed."""

import json
from decimal import Decimal

from django.db import transaction
from django.http import Http404, HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from esclusa.integrations.django import insert, opened

from .models import Order
from .pipeline import LetterRecord, OrderRecord


@csrf_exempt
def place(request: HttpRequest) -> JsonResponse:
    given = json.loads(request.body)
    try:
        with transaction.atomic():
            order = Order.objects.create(number=given["number"], amount=Decimal(given["amount"]))
            insert([LetterRecord(order_id=order.pk, text="Thank you for your order.")])
            if order.amount < 0:
                raise ValueError("an order has a positive amount")  # rolls back
    except ValueError as error:
        return JsonResponse({"error": str(error)}, status=422)
    return JsonResponse({"id": order.pk}, status=201)


def show(request: HttpRequest, number: str) -> JsonResponse:
    order = Order.objects.filter(number=number).first()
    if order is None:
        raise Http404
    if "wait" in request.GET:
        opened().wait(OrderRecord, str(order.pk), timeout=30)
    record = opened().get(OrderRecord, str(order.pk))
    assert record is not None
    return JsonResponse(
        {
            "status": record.status,
            "receipt": record.receipt,
            "letters": opened().count(LetterRecord, {"order_id": order.pk, "status": "sent"}),
        }
    )
