"""Cloud Storage: the package gcp-storage-emulator in a process of its own, with preconditions.

By itself the emulator ignores preconditions and returns the newest generation of an object. Here
both are checked before the write; it serves one request at a time, so check and write are atomic.
``GET /faults?lose=N`` makes it perform the next N writes without an answer;
``GET /faults?refuse=N&status=503`` makes it refuse the next N requests.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from http.server import HTTPServer
from typing import Any, ClassVar

BUCKET = "esclusa-tests"
_NOT_MET = "At least one of the pre-conditions you specified did not hold."


@dataclass(frozen=True, slots=True)
class GcsServer:
    """A running emulator. ``environ`` holds the settings with which a user reaches it."""

    endpoint: str

    @property
    def environ(self) -> dict[str, str]:
        return {"STORAGE_EMULATOR_HOST": self.endpoint}

    def faults(self, **orders: int) -> int:
        """Inject faults; return the number of requests so far."""
        address = f"{self.endpoint}/faults?{urllib.parse.urlencode(orders)}"
        with urllib.request.urlopen(address, timeout=10) as answer:
            return int(json.load(answer)["requests"])

    def client(self) -> Any:
        """Google's own client, as an oracle that shares no code with Esclusa."""
        from google.auth.credentials import AnonymousCredentials
        from google.cloud import storage

        nobody = AnonymousCredentials()  # type: ignore[no-untyped-call]
        return storage.Client("esclusa", nobody, client_options={"api_endpoint": self.endpoint})


@contextlib.contextmanager
def gcs_server() -> Iterator[GcsServer]:
    """An emulator with one bucket, ``BUCKET``."""
    command = [sys.executable, __file__]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline() or b"0")
            if not port:
                raise RuntimeError(
                    "the emulator of Cloud Storage did not start:"
                    " install the package gcp-storage-emulator"
                )
            yield GcsServer(f"http://127.0.0.1:{port}")
        finally:
            process.kill()


class Faults:
    """The faults to inject, and the requests so far."""

    lose = 0
    refuse = 0
    status = 503
    requests = 0
    finished: ClassVar[dict[str, str]] = {}
    """The answers of finished upload sessions, which a repeated request gets again."""


def _answer(response: Any, status: int, reason: str, message: str) -> None:
    response.status = HTTPStatus(status)
    response.json(
        {
            "error": {
                "code": status,
                "message": message,
                "errors": [{"message": message, "reason": reason, "domain": "global"}],
            }
        }
    )


def _object_of(request: Any, storage: Any) -> Any:
    """The live object of a request; None if it does not exist."""
    name = request.params.get("object_id")
    if name is None and "upload_id" in request.query:
        name = storage.get_resumable_file_obj(request.query["upload_id"][0])["name"]
    if name is None and "name" in request.query:
        name = request.query["name"][0]
    if name is None and isinstance(request.data, dict):
        name = request.data.get("meta", request.data).get("name")
    return storage.objects.get(request.params["bucket_name"], {}).get(name)


def _checked(handler: Any, writes: bool) -> Any:
    """The handler, after the preconditions and the faults."""

    def handle(request: Any, response: Any, storage: Any) -> None:
        Faults.requests += 1
        if Faults.refuse:
            Faults.refuse -= 1
            _ = request.data
            _answer(response, Faults.status, "backendError", "refused on purpose")
            return
        session = request.query.get("upload_id", [""])[0]
        if session in Faults.finished:
            _ = request.data
            response.json(json.loads(Faults.finished[session]))
            return
        found = None
        if "ifGenerationMatch" in request.query or "generation" in request.query:
            found = _object_of(request, storage)
        live = "0" if found is None else str(found["generation"])
        if request.query.get("ifGenerationMatch", [live])[0] != live:
            _answer(response, 412, "conditionNotMet", _NOT_MET)
            return
        if request.query.get("generation", [live])[0] != live:
            _answer(response, 404, "notFound", "No such object")
            return
        handler(request, response, storage)
        if session and response.status == HTTPStatus.OK:
            Faults.finished[session] = response._content
        if (
            writes
            and Faults.lose
            and response.status == HTTPStatus.OK
            and "Location" not in response._headers
        ):
            Faults.lose -= 1
            raise ConnectionAbortedError("the answer is lost on purpose")

    return handle


def _set_faults(request: Any, response: Any, storage: Any) -> None:
    for name in ("lose", "refuse", "status"):
        if name in request.query:
            setattr(Faults, name, int(request.query[name][0]))
    response.json({"requests": Faults.requests})


def main() -> None:
    """Serve until the parent process ends."""
    from gcp_storage_emulator import server
    from gcp_storage_emulator.handlers import objects

    for pattern, handlers in server.HANDLERS:
        for method, handler in list(handlers.items()):
            if "/o" in pattern and handler.__module__ == objects.__name__:
                handlers[method] = _checked(handler, method in ("POST", "PUT", "DELETE"))
    server.HANDLERS = ((r"^/faults$", {"GET": _set_faults}), *server.HANDLERS)
    HTTPServer.request_queue_size = 128  # as many connections may wait while it serves one
    # With port 0 the server chooses a free port, known once it listens.
    served = server.Server("127.0.0.1", 0, in_memory=True, default_bucket=BUCKET)
    served.start()
    print(served._api._httpd.server_address[1], flush=True)
    sys.stdin.read()  # until the parent ends
    served.stop()


if __name__ == "__main__":
    main()
