"""HTTP on the socket: bytes that are no request are answered in the one shape of every refusal too."""

from __future__ import annotations

from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from esclusa.web.problems import problem

_DETAIL: Final = "This is not HTTP that can be read: the request line, a header (its length, its encoding) or the body's framing is wrong."


class Http(H11Protocol):
    """The server's own protocol, but for what it says to a request that no route will ever see."""

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            said = problem(400, _DETAIL, slug="bad-request")
            headers = [
                *said.raw_headers,
                (b"x-content-type-options", b"nosniff"),
                (b"connection", b"close"),
            ]
            response = h11.Response(
                status_code=said.status_code, headers=headers, reason=b"Bad Request"
            )
            for event in (response, h11.Data(data=bytes(said.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()  # an answer was under way: all that can be said is that it ends here
