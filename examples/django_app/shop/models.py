"""The site's own tables."""

from django.db import models


class Order(models.Model):
    number = models.CharField(max_length=40, unique=True)
    amount = models.DecimalField(max_digits=12, decimal_places=2)
    receipt = models.CharField(max_length=40, null=True, blank=True)
    placed_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "orders"

    def __str__(self) -> str:
        return self.number


class Letter(models.Model):
    """What is sent to the customer of an order."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE)
    text = models.TextField()

    class Meta:
        db_table = "letters"
