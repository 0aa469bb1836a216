"""A sentence with values, which a reader translates and fills in again."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

# The most characters of a value.
LENGTH: Final = 2000


class Text(str):
    """An English sentence with values in braces: ``Text("job {job} failed", job="7")``.

    It is a string, the sentence with its values. The console translates the sentence with its
    catalog and fills in the same values. A pipeline may give one wherever it gives a message: to
    an error, as the reason of an outcome, to the end of a run, to an alert. A value may be a text
    or an error, which keeps the text that it was given.

    Braces hold a name, as in ``{name}``, ``{number:,}`` and ``{number:g}``; anything else raises
    ValueError, and a missing value KeyError. ``code`` is empty unless the text is Esclusa's own.
    """

    __slots__ = ("code", "template", "values")
    code: str
    template: str
    values: Mapping[str, Any]

    def __new__(cls, template: str, /, **values: Any) -> Text:
        _check(template)
        return cls.of("", template, {name: _value(each) for name, each in values.items()})

    @classmethod
    def of(cls, code: str, template: str, values: Mapping[str, Any]) -> Text:
        """The text of a code."""
        made = str.__new__(cls, fill(template, values))
        made.code, made.template, made.values = code, template, values
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Text.of, (self.code, self.template, self.values)

    def dump(self) -> str:
        """The form in which it is stored: a JSON object with the code or sentence and the values.

        A value that is a text itself is stored in the same form.
        """
        return json.dumps(_packed(self), default=str, ensure_ascii=False)


def fill(template: str, values: Mapping[str, Any]) -> str:
    """The template with its values; times are written to the second."""
    return template.format(
        **{
            name: each.isoformat(" ", "seconds") if isinstance(each, datetime) else each
            for name, each in values.items()
        }
    )


_FIELD = re.compile(r"{[a-z][a-z_]*(:[,g])?}")


@lru_cache(maxsize=1024)
def _check(template: str) -> None:
    """Refuse what a stored sentence must not format, such as attributes or a width."""
    if re.search("[{}]", _FIELD.sub("", template)):
        raise ValueError(f"braces hold a name, {{number:,}} or {{number:g}}: {template!r:.200}")


def _value(given: Any) -> Any:
    if isinstance(given, BaseException):
        own = given.args[0] if len(given.args) == 1 else None
        given = own if isinstance(own, Text) else str(given) or type(given).__name__
    if isinstance(given, Text | int | float | datetime):
        return given
    from esclusa.model.storable import storable_text  # noqa: PLC0415 - its errors have texts

    return storable_text(str(given)[:LENGTH])


def _packed(text: Text) -> dict[str, Any]:
    values = {n: _packed(v) if isinstance(v, Text) else v for n, v in text.values.items()}
    if text.code:
        return {"code": text.code, **values}
    return {"sentence": text.template, "values": values}
