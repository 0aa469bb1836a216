"""A plugin of mypy: it checks the answers of handlers against the record.

``plugins = ["pydantic.mypy", "esclusa.mypy"]``. In a handler, ``To``, ``Retry`` and ``Wait`` may
name only fields of the record, and ``To`` only states of its lifecycle that a declared move leads
to. Of records made of SQLAlchemy's mapped classes it knows the fields with their types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from mypy.errorcodes import ErrorCode
from mypy.maptype import map_instance_to_supertype
from mypy.nodes import (
    AssignmentStmt,
    CallExpr,
    ClassDef,
    Decorator,
    Expression,
    FuncDef,
    ListExpr,
    NameExpr,
    RefExpr,
    Statement,
    StrExpr,
    TupleExpr,
    TypeInfo,
    Var,
)
from mypy.plugin import (
    AttributeContext,
    CheckerPluginInterface,
    ClassDefContext,
    MethodContext,
    Plugin,
)
from mypy.types import AnyType, Instance, Type, TypeOfAny, get_proper_type

from esclusa.model.errors import DeclarationError
from esclusa.model.lifecycle import Lifecycle

RECORD: Final = "esclusa.model.record.Record"
MAPPED: Final = "esclusa.integrations.sqlalchemy.MappedRecord"
MODEL: Final = "esclusa.integrations.django.model_records.ModelRecord"
DECORATORS: Final = tuple(
    f"esclusa.model.stage_options.{name}.__call__" for name in ("StageDecorator", "BatchDecorator")
)
# The arguments of each outcome that are no fields.
OUTCOMES: Final = {
    "esclusa.model.outcome.To": {"also", "after", "attempts", "reason", "fault"},
    "esclusa.model.outcome.Retry": {"after", "type", "permanent", "attempts", "also"},
    "esclusa.model.outcome.Wait": {"reason", "stage", "attempts"},
}
# Where the text of a lifecycle is kept, so that mypy's cache has it.
KEY: Final = "esclusa"

FIELD = ErrorCode("esclusa-field", "The record has no such field", "Esclusa")
MOVE = ErrorCode("esclusa-move", "The lifecycle has no such move", "Esclusa")


class EsclusaPlugin(Plugin):
    """The hooks of the plugin."""

    def get_customize_class_mro_hook(
        self, fullname: str
    ) -> Callable[[ClassDefContext], None] | None:
        return None if fullname.startswith("builtins.") else _note_lifecycle

    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        return _check_handler if fullname in DECORATORS else None

    def get_attribute_hook(self, fullname: str) -> Callable[[AttributeContext], Type] | None:
        if fullname.startswith(f"{MAPPED}."):
            name = fullname.rpartition(".")[2]
            return lambda context: _mapped_attribute(context, name)
        return None


def plugin(version: str) -> type[Plugin]:
    """What mypy loads."""
    return EsclusaPlugin


# records


def _note_lifecycle(context: ClassDefContext) -> None:
    text = _lifecycle_text(context.cls)
    if text is not None:
        context.cls.info.metadata[KEY] = {"lifecycle": text}


def _lifecycle_text(cls: ClassDef) -> str | None:
    for statement in cls.defs.body:
        if (
            isinstance(statement, AssignmentStmt)
            and isinstance(statement.lvalues[0], NameExpr)
            and statement.lvalues[0].name == "lifecycle"
            and isinstance(statement.rvalue, CallExpr)
            and statement.rvalue.args
            and isinstance(statement.rvalue.args[0], StrExpr)
        ):
            return statement.rvalue.args[0].value
    return None


def _lifecycle(info: TypeInfo) -> Lifecycle | None:
    """The lifecycle of a record; None if it is not written as one text, or is wrong."""
    for base in info.mro:
        text = base.metadata.get(KEY, {}).get("lifecycle")
        if text is not None:
            try:
                return Lifecycle(text)
            except DeclarationError:
                return None  # it is reported when the module is imported
    return None


def _fields(record: Instance) -> set[str] | None:
    """The fields of a record; None if they are not known."""
    if record.type.fallback_to_any or record.type.fullname == RECORD or record.type.has_base(MODEL):
        return None
    bases = [base for base in record.type.mro if base.has_base(RECORD) and base.fullname != RECORD]
    fields = {name for base in bases for name in _declared(base)}
    mapped = _mapped_class(record)
    if mapped is not None:
        fields |= {name for base in mapped.mro for name in base.names if _column(mapped, name)}
    elif record.type.has_base(MAPPED):
        return None
    return fields


def _declared(info: TypeInfo) -> Iterator[str]:
    for name, symbol in info.names.items():
        if isinstance(symbol.node, Var) and not symbol.node.is_classvar:
            yield name


def _mapped_class(record: Instance) -> TypeInfo | None:
    base = next((b for b in record.type.mro if b.fullname == MAPPED), None)
    if base is None:
        return None
    [argument] = map_instance_to_supertype(record, base).args
    mapped = get_proper_type(argument)
    return mapped.type if isinstance(mapped, Instance) else None


def _column(mapped: TypeInfo, name: str) -> Type | None:
    """The type of a column of a mapped class; None if it has no such column."""
    symbol = mapped.get(name)
    found = get_proper_type(symbol.type) if symbol is not None else None
    is_column = isinstance(found, Instance) and any(
        base.fullname == "sqlalchemy.orm.base.Mapped" for base in found.type.mro
    )
    return found.args[0] if is_column and isinstance(found, Instance) and found.args else None


def _mapped_attribute(context: AttributeContext, name: str) -> Type:
    record = get_proper_type(context.type)
    mapped = _mapped_class(record) if isinstance(record, Instance) else None
    if mapped is None or not isinstance(record, Instance):
        return context.default_attr_type
    found = _column(mapped, name)
    if found is None:
        message = f"{record.type.name} has no field {name}: {mapped.name} has no such column"
        context.api.fail(message, context.context, code=FIELD)
        return AnyType(TypeOfAny.from_error)
    return found


# handlers


def _check_handler(context: MethodContext) -> Type:
    """Check the answers in a handler's body, when its decorator is checked."""
    decorated, owner = context.context, get_proper_type(context.type)
    if not isinstance(decorated, Decorator) or not isinstance(owner, Instance) or not owner.args:
        return context.default_return_type
    record = get_proper_type(owner.args[0])
    if isinstance(record, Instance) and record.type.has_base(RECORD):
        stages = [each for each in decorated.decorators if isinstance(each, CallExpr)]
        answers = _Answers(context.api, record, stages)
        for call in _calls(decorated.func.body):
            answers.check(call)
    return context.default_return_type


# The attributes of statements and expressions that have others in them. mypy's own visitors are
# compiled, and a plugin cannot inherit from them.
_INSIDE: Final = (
    *("body", "else_body", "finally_body", "handlers", "bodies", "guards", "subject"),
    *("expr", "rvalue", "lvalues", "callee", "args", "base", "index", "left", "right", "items"),
    *("cond", "if_expr", "else_expr", "generator", "left_expr", "sequences", "condlists"),
    *("key", "value", "operands"),
)


def _calls(node: object) -> Iterator[CallExpr]:
    """The calls in a function's body, without those in functions inside."""
    if isinstance(node, list | tuple):
        for each in node:
            yield from _calls(each)
    elif isinstance(node, Statement | Expression) and not isinstance(node, FuncDef | Decorator):
        if isinstance(node, CallExpr):
            yield node
        for name in _INSIDE:
            yield from _calls(getattr(node, name, None))


class _Answers:
    """Reports the outcomes that the record refuses."""

    def __init__(
        self, api: CheckerPluginInterface, record: Instance, stages: list[CallExpr]
    ) -> None:
        self._api = api
        self._record = record
        self._fields = _fields(record)
        self._lifecycle = _lifecycle(record.type)
        self._sources = [state for stage in stages for state in _working_states(stage)]

    def check(self, call: CallExpr) -> None:
        """Report what is wrong with this call, if it makes an outcome."""
        name = call.callee.fullname if isinstance(call.callee, RefExpr) else ""
        if name not in OUTCOMES:
            return
        outcome = name.rpartition(".")[2]
        if self._fields is not None:
            for argument in call.arg_names:
                if argument is not None and argument not in self._fields | OUTCOMES[name]:
                    self._fail(call, f"{outcome}: {self._table} has no field {argument}", FIELD)
        if outcome == "To" and call.args and isinstance(call.args[0], StrExpr):
            self._check_state(call, call.args[0].value)

    def _check_state(self, call: CallExpr, state: str) -> None:
        life = self._lifecycle
        if life is None:
            return
        if state not in life.states:
            states = ", ".join(life.states)
            self._fail(call, f"To: {self._table} has no state {state}; it has {states}", MOVE)
        for source in self._sources:
            if source in life.states and state in life.states and not life.allows(source, state):
                move = f"{source} -> {state}"
                self._fail(call, f"To: {self._table} does not declare the move {move}", MOVE)

    @property
    def _table(self) -> str:
        return self._record.type.name

    def _fail(self, call: CallExpr, message: str, code: ErrorCode) -> None:
        self._api.fail(message, call, code=code)


def _working_states(stage: CallExpr) -> list[str]:
    """The states in which the handler's records are, by the options of ``@app.stage``."""
    given = dict(zip(stage.arg_names, stage.args, strict=True))
    hold = given.get("hold")
    if hold is not None:
        return _texts(hold)
    return _texts(given["take"]) if "take" in given else []


def _texts(expression: Expression) -> list[str]:
    if isinstance(expression, StrExpr):
        return [expression.value]
    items = expression.items if isinstance(expression, ListExpr | TupleExpr) else []
    return [item.value for item in items if isinstance(item, StrExpr)]
