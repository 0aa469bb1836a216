"""Declared settings: typed fields with their names in the environment and their purpose."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Sequence
from types import UnionType
from typing import Any, Literal

from pydantic import BaseModel, Field, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from esclusa.model.value import value

_KEY = "esclusa"
_LISTS = (list, tuple, set, frozenset)
_LIMITS = {
    "ge": "{} or more",
    "gt": "more than {}",
    "le": "{} or less",
    "lt": "less than {}",
    "pattern": "matching {}",
}


def option(
    env: str | Sequence[str],
    default: Any = ...,
    *,
    secret: bool = False,
    help: str = "",
    **limits: Any,
) -> Any:
    """A setting of a pipeline: a field of its settings model.

    ``env``: its name in the environment (of several, the last one that is set counts). In the
    settings file it is the field's name in the pipeline's table. ``secret`` values are never shown;
    annotate them ``SecretStr``. ``limits`` are pydantic's (``ge=1``, ``pattern=…``)::

        class MediaSettings(BaseModel):
            timeout_seconds: float = option("MEDIA_TIMEOUT_SECONDS", 30.0, gt=0, help="…")
            secret: SecretStr | None = option("META_APP_SECRET", None, secret=True, help="…")

        app = App("media", settings=MediaSettings)
    """
    names: list[Any] = [env] if isinstance(env, str) else list(env)
    return Field(
        default,
        description=help,
        json_schema_extra={_KEY: {"env": names, "secret": secret}},
        **limits,
    )


@value
class Option:
    """One declared setting, as the loader, ``esclusa doctor`` and the reference use it."""

    field: str
    env: tuple[str, ...]
    secret: bool
    help: str
    required: bool
    default: Any
    allowed: str
    # Whether it is a list, written with commas.
    many: bool


def options_of(model: type[BaseModel], prefix: str = "") -> Iterator[Option]:
    """The settings that a model declares. A field without ``env`` gets ``PREFIX_FIELD``."""
    for name, info in model.model_fields.items():
        extra = info.json_schema_extra
        declared: Any = extra.get(_KEY) if isinstance(extra, dict) else None
        if declared is None and not prefix:
            continue  # a field of Esclusa's own settings that is not a setting
        declared = declared or {"env": [f"{prefix}_{name}".upper().replace("-", "_")]}
        types = _types(info.annotation)
        default = None if info.default is PydanticUndefined else info.default
        if info.default_factory is not None:
            default = info.get_default(call_default_factory=True, validated_data={})
        yield Option(
            name,
            tuple(declared["env"]),
            bool(declared.get("secret")) or SecretStr in types,
            info.description or "",
            info.is_required(),
            default,
            allowed(info),
            any(typing.get_origin(t) in _LISTS for t in types),
        )


def allowed(info: FieldInfo) -> str:
    """What the field accepts, such as ``a whole number, 1 or more`` or ``one of auto, json``."""
    words = " or ".join(
        dict.fromkeys(_words(t) for t in _types(info.annotation) if t is not type(None))
    )
    limits = [
        text.format(bound)
        for limit in info.metadata
        for name, text in _LIMITS.items()
        if (bound := getattr(limit, name, None)) is not None
    ]
    return f"{words}, {' and '.join(limits)}" if limits else words


def _types(annotation: Any) -> list[Any]:
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, UnionType):
        return [t for part in typing.get_args(annotation) for t in _types(part)]
    if origin is typing.Annotated:
        return _types(typing.get_args(annotation)[0])
    return [annotation]


def _words(annotation: Any) -> str:
    if typing.get_origin(annotation) is Literal:
        return "one of " + ", ".join(map(str, typing.get_args(annotation)))
    if typing.get_origin(annotation) in _LISTS:
        return "a list, separated by commas"
    simple = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "text",
        SecretStr: "text",
        dict: "a table",
    }
    annotation = dict if typing.get_origin(annotation) is dict else annotation
    return simple.get(annotation, f"a {getattr(annotation, '__name__', annotation)}")
