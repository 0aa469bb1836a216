"""Uvicorn's HTTP protocol, with a problem response for bytes that are not a valid request."""

from __future__ import annotations

from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from esclusa.web.problems import problem

_DETAIL: Final = (
    "This is not a valid HTTP request: the request line, a header (its length, its encoding) or the"
    " body's framing is wrong."
)


class HttpProtocol(H11Protocol):
    """Answers malformed requests, which reach no route, with a problem."""

    def send_400_response(self, msg: str) -> None:
        """Send the problem unless another response has begun, and close the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            refused = problem(400, _DETAIL, slug="bad-request")
            headers = [
                *refused.raw_headers,
                (b"x-content-type-options", b"nosniff"),
                (b"connection", b"close"),
            ]
            response = h11.Response(
                status_code=refused.status_code, headers=headers, reason=b"Bad Request"
            )
            for event in (response, h11.Data(data=bytes(refused.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
