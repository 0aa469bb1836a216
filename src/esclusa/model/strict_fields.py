"""Models that refuse unknown fields in code, and note which fields were assigned to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel

from esclusa.model.columns import TRACKING
from esclusa.model.errors import UndeclaredField
from esclusa.model.texts import text


class StrictFields(BaseModel):
    """Raises UndeclaredField for an unknown field in the constructor, in ``but`` or when assigned.

    ``model_validate`` ignores unknown fields: rows may have columns that nobody declared.
    """

    if not TYPE_CHECKING:  # a type checker knows the fields of each model

        def __init__(self, /, **fields: Any) -> None:
            if not fields.keys() <= (known := _parameters(type(self))):
                raise undeclared(type(self), sorted(fields.keys() - known))
            # As BaseModel does it; another call for every record would cost 0.3 µs.
            if self.__pydantic_validator__.validate_python(fields, self_instance=self) is not self:
                super().__init__(**fields)  # warns of a validator that returns another object

        # pydantic would otherwise call it for every row that it validates.
        __init__.__pydantic_base_init__ = True

        def __setattr__(self, name: str, value: Any) -> None:
            if name in type(self).model_fields:
                before = self.__dict__.get(name)
                super().__setattr__(name, value)
                _set_assigned(self, {name: before, **assigned(self)})
                return
            try:
                super().__setattr__(name, value)
            except ValueError:
                raise undeclared(type(self), [name]) from None

    def but(self, **fields: Any) -> Self:
        """A copy with these fields."""
        if unknown := fields.keys() - type(self).model_fields.keys():
            raise undeclared(type(self), sorted(unknown))
        return self.model_copy(update=fields)


class _AssignedFields(set[str]):
    """``__pydantic_fields_set__`` of a model that was assigned to. A copy of it is a plain set.

    Kept there, so that a model that nobody assigns to costs nothing.
    """

    before: Mapping[str, Any]

    def __reduce__(self) -> tuple[Any, ...]:
        return set, (list(self),)


_NOTHING: Mapping[str, Any] = MappingProxyType({})


def assigned(model: StrictFields) -> Mapping[str, Any]:
    """The fields that were assigned to, with their values before. Called for every record."""
    fields_set = model.__pydantic_fields_set__
    return fields_set.before if type(fields_set) is _AssignedFields else _NOTHING


def set_stored(model: StrictFields, fields: Mapping[str, Any]) -> None:
    """Set fields to what is stored. They no longer count as assigned."""
    model.__dict__.update(fields)
    left = {name: before for name, before in assigned(model).items() if name not in fields}
    _set_assigned(model, left)


def restore_tracking(model: StrictFields) -> None:
    """Undo assignments to the id and the tracking fields: a settlement is made of them."""
    for name, before in assigned(model).items():
        if name == "id" or name in TRACKING:
            model.__dict__[name] = before


def _set_assigned(model: StrictFields, before: Mapping[str, Any]) -> None:
    fields_set = _AssignedFields(model.__pydantic_fields_set__)
    fields_set.before = before
    object.__setattr__(model, "__pydantic_fields_set__", fields_set)


def undeclared(model: type[BaseModel], names: Iterable[str]) -> UndeclaredField:
    """The error for names that are not fields of the model."""
    kind = getattr(model, "kind", None)
    return UndeclaredField(
        text(
            "no_field",
            table=model.__name__ if kind is None else kind.table,
            name=", ".join(names),
            fields=", ".join(n for n in model.model_fields if n != "id" and n not in TRACKING),
        )
    )


@cache
def _parameters(model: type[BaseModel]) -> frozenset[str]:
    """The names that the constructor takes."""
    aliases = [a for f in model.model_fields.values() for a in (f.alias, f.validation_alias)]
    return frozenset([*model.model_fields, *(alias for alias in aliases if isinstance(alias, str))])
