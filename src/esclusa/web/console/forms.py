"""Forms that visitors send: read, checked for forgery, and their fields."""

from __future__ import annotations

from urllib.parse import parse_qsl

from fastapi import Request
from starlette.exceptions import HTTPException

from esclusa.web.console.catalog import gettext as _

MAX_FIELDS = 5000
MAX_REASON = 1000


class FormRefused(HTTPException):
    """A form that is refused; its detail says why, in the language of the page."""


class SubmittedForm:
    """The fields of a form, in their order; a name may occur several times."""

    def __init__(self, items: list[tuple[str, str]]) -> None:
        self.items = items

    def get(self, name: str, default: str = "") -> str:
        return next((value for key, value in self.items if key == name), default)

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.items if key == name]

    @property
    def reason(self) -> str:
        """Why the operator acts; FormRefused if it is empty."""
        given = self.get("reason").strip()
        if not given:
            raise FormRefused(
                422, _("Enter a reason. It is kept in the history and the audit log.")
            )
        return given[:MAX_REASON]

    @property
    def matched(self) -> int:
        """How many records the preview showed; 0 if the form does not say."""
        given = self.get("matched")
        return int(given) if given.isdecimal() and len(given) < 16 else 0


async def read_form(request: Request) -> SubmittedForm:
    """The form in the body of a request; FormRefused if it is malformed.

    The page that holds the form is remembered as ``request.state.page``.
    """
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        raise FormRefused(
            415, _("Send the form with Content-Type: application/x-www-form-urlencoded.")
        )
    try:
        items = parse_qsl(
            (await request.body()).decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS
        )
    except ValueError:
        raise FormRefused(400, _("The form is malformed.")) from None
    form = SubmittedForm(items)
    request.state.page = local(form.get("next"))
    if any("\0" in part for item in items for part in item):  # no store accepts a null character
        raise FormRefused(400, _("The form is malformed."))
    return form


def local(path: str) -> str:
    """The path if it is on this server, else the map: a form never leads to another site."""
    outside = not path.startswith("/") or path.startswith(("//", "/\\"))
    return "/" if outside or "\n" in path or "\r" in path else path
