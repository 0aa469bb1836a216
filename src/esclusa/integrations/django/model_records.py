"""Records made of Django models: the model is the one definition of the columns."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar
from uuid import UUID

from django.db import models
from django.db.models.fields import NOT_PROVIDED
from pydantic import create_model

from esclusa.integrations.fields import record_options, union_with_none
from esclusa.model.errors import DeclarationError
from esclusa.model.record import Record

M = TypeVar("M")

# The type of a record's field, by the class of the model's; a subclass comes before its base.
_TYPES: dict[type[models.Field[Any, Any]], Any] = {
    models.BooleanField: bool,
    models.IntegerField: int,
    models.AutoField: int,
    models.FloatField: float,
    models.DecimalField: Decimal,
    models.DateTimeField: datetime,
    models.DateField: date,
    models.UUIDField: UUID,
    models.BinaryField: bytes,
    models.JSONField: Any,
    models.CharField: str,
    models.TextField: str,
    models.FileField: str,
    models.GenericIPAddressField: str,
}


class ModelRecord(Record, Generic[M]):
    """A record of the table of a Django model, whose columns are declared only there.

    ``class OrderRecord(ModelRecord[Order]): lifecycle = Lifecycle("…")``. The options are those of
    ``Record``. By default the tracking columns begin with ``esclusa_``, and the database notifies
    workers of new rows. A column that the tracking uses is no field, and neither is one whose name
    every record has (``id``, ``status``, ``updated_at``). A foreign key is its id: ``customer_id``.
    """

    model: ClassVar[type[models.Model]]

    if TYPE_CHECKING:  # fields may be read and given by name

        def __init__(self, **fields: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

    else:

        def __class_getitem__(cls, model: Any) -> Any:
            return cls if isinstance(model, TypeVar) else _base(model)

        @classmethod
        def __pydantic_init_subclass__(cls, **options: Any) -> None:
            if hasattr(cls, "lifecycle"):
                options = record_options(cls, _described(cls.model), options)
            super().__pydantic_init_subclass__(**options)


@cache
def _base(model: type[models.Model]) -> type[ModelRecord[Any]]:
    """The common base of the records of a model: the fields, without table and lifecycle."""
    fields: dict[str, Any] = {field.attname: _typed(field) for field in _fields(model)}
    base: Any = create_model(
        f"{model.__name__}Fields", __base__=ModelRecord, __module__=model.__module__, **fields
    )
    base.model = model
    made: type[ModelRecord[Any]] = base
    return made


def _described(model: type[models.Model]) -> dict[str, Any]:
    """The options of a record that the model shows."""
    key: Any = model._meta.pk  # noqa: SLF001 - documented by Django
    if key is None or getattr(key, "columns", None):
        raise DeclarationError(f"record of {model.__name__}", ["its primary key needs one column"])
    columns = {field.attname: str(field.column) for field in _fields(model)}
    return {
        "table": model._meta.db_table,  # noqa: SLF001
        "id": key.column,
        "columns": {name: column for name, column in columns.items() if name != column},
        "database_id": isinstance(key, models.AutoField)
        or getattr(key, "db_default", NOT_PROVIDED) is not NOT_PROVIDED,
    }


def _fields(model: type[models.Model]) -> Iterator[Any]:
    for field in model._meta.concrete_fields:  # noqa: SLF001
        generated = getattr(field, "generated", False)
        if not field.primary_key and not generated and field.attname not in Record.model_fields:
            yield field


def _typed(field: Any) -> tuple[Any, Any]:
    """The type and the default of a field."""
    target = field.target_field if field.is_relation else field
    kind = next((of for cls, of in _TYPES.items() if isinstance(target, cls)), Any)
    if field.null or getattr(field, "db_default", NOT_PROVIDED) is not NOT_PROVIDED:
        return union_with_none(kind), None
    if field.default is NOT_PROVIDED:
        automatic = getattr(field, "auto_now", False) or getattr(field, "auto_now_add", False)
        return (
            (kind, "")
            if field.empty_strings_allowed and field.blank
            else _required(kind, optional=automatic)
        )
    if callable(field.default):
        from pydantic import Field  # noqa: PLC0415

        return kind, Field(default_factory=field.default)
    return kind, field.default


def _required(kind: Any, *, optional: bool) -> tuple[Any, Any]:
    return (union_with_none(kind), None) if optional else (kind, ...)
