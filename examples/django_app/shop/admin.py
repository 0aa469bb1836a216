"""The admin of orders retries what was refused."""

from django.contrib import admin

from esclusa.integrations.django import retry_action

from .models import Order
from .pipeline import OrderRecord


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    list_display = ["number", "amount", "receipt"]
    actions = [retry_action(OrderRecord)]
