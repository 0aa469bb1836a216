"""Conversion of stored values to the declared type of their field: enums, sets, models."""

from __future__ import annotations

import typing
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

if TYPE_CHECKING:
    from esclusa.model.record import Kind

_SCALARS = (str, int, float, bool, type(None), Any)
_PLAIN = (*_SCALARS, bytes, datetime, date, Decimal, dict, list)


def retyped(kind: Kind) -> list[tuple[str, Callable[[Any], Any]]]:
    """The fields whose declared type a store does not read directly, each with its conversion.

    A value that cannot be converted is left as it is.
    """
    models = kind.model.model_fields
    return [
        (f.name, _converter(models[f.name].annotation))
        for f in kind.fields
        if not _is_plain(models[f.name].annotation)
    ]


def _converter(annotation: Any) -> Callable[[Any], Any]:
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)

    def convert(value: Any) -> Any:
        try:
            return adapter.validate_python(value)
        except ValidationError:
            return value

    return convert


def _is_plain(annotation: Any) -> bool:
    if annotation in _PLAIN:
        return True
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return all(type(value) in (str, int, bool) for value in args)
    if origin is typing.Annotated:
        return _is_plain(args[0])
    if origin in (dict, list):
        inner = all(
            a in _SCALARS or (typing.get_origin(a) in (dict, list) and _is_plain(a)) for a in args
        )
        return inner and (origin is list or args[0] in (str, Any))
    return origin is not None and type(None) in args and all(_is_plain(a) for a in args)
