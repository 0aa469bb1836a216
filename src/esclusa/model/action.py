"""Actions: a pipeline's own verbs for operators, such as to search a post again."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from esclusa.model.errors import BadQuery
from esclusa.model.kind import Kind
from esclusa.model.outcome import To
from esclusa.model.query import Cond, Where
from esclusa.model.texts import text
from esclusa.model.value import value

# Chooses what becomes of one record: its move, or a text that says why it is skipped.
Choose = Callable[[Any, Any], Awaitable[To | str]]
# Acts on no record; returns what was done.
Perform = Callable[[Any], Awaitable[str]]


class NoParameters(BaseModel):
    """The parameters of an action that has none."""

    model_config = ConfigDict(extra="forbid")


@value
class Action:
    """A verb that a pipeline declares; console, API and command line offer it.

    ``name`` includes the pipeline's (``replies.recollect``); ``title`` and ``about`` are by
    language. It is for the records of ``kind`` that match ``where``; without a kind it acts on none
    of them.
    """

    name: str
    title: Mapping[str, str]
    about: Mapping[str, str]
    function: Callable[..., Awaitable[Any]]
    kind: Kind | None
    where: Where
    params: type[BaseModel]

    @property
    def verb(self) -> str:
        """What history and audit call it."""
        return self.name.partition(".")[2]

    @property
    def required(self) -> frozenset[str]:
        """The parameters that the operator must enter."""
        fields = self.params.model_fields
        return frozenset(name for name, field in fields.items() if field.is_required())

    def read_params(self, given: Mapping[str, Any]) -> BaseModel:
        """The parameters, checked. Raises BadQuery with every fault."""
        if unknown := sorted(set(given) - set(self.params.model_fields)):
            known = ", ".join(self.params.model_fields) or "-"
            names = ", ".join(unknown)
            raise BadQuery(text("action_parameter", action=self.name, names=names, known=known))
        try:
            return self.params.model_validate(dict(given))
        except ValidationError as error:
            faults = [
                f"{'.'.join(map(str, e['loc']))}: {e['msg']}"
                for e in error.errors(include_url=False, include_context=False)
            ]
            why = "; ".join(faults)
            raise BadQuery(text("action_parameters", action=self.name, why=why)) from None


def about_of(function: Callable[..., Any], about: str | Mapping[str, str]) -> Mapping[str, str]:
    """The description by language; by default the first sentence of the function's docstring."""
    if isinstance(about, str):
        return {"en": about or (inspect.getdoc(function) or "").partition("\n")[0]}
    return about


def both(where: Where, more: Where) -> dict[str, Any]:
    """The records that match both filters."""
    joined = dict(where)
    for name, test in more.items():
        joined[name] = (*_conds(where[name]), *_conds(test)) if name in where else test
    return joined


def _conds(test: Any) -> tuple[Cond, ...]:
    tests = test if isinstance(test, tuple) else (test,)
    return tuple(each if isinstance(each, Cond) else Cond("eq", each) for each in tests)
