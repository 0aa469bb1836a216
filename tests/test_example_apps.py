"""The example applications work with a real PostgreSQL, as a team would run them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.loopback import free_port

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
async def postgres(providers: Callable[[str], Any]) -> AsyncIterator[str]:
    """The URL of an empty PostgreSQL database."""
    database = await providers("postgres").database(empty=True)
    yield database.url
    await database.remove()


class Site:
    """An application that is served on this machine."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.folder = folder
        clean = {n: v for n, v in os.environ.items() if not n.startswith(("ESCLUSA_", "PORT"))}
        self.environ = {**clean, **environ}
        self.address = ""

    def run(self, *argv: str, code: int = 0) -> str:
        """Run a Python program in its folder; return what it printed."""
        done = subprocess.run(
            [sys.executable, *argv],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == code, done.stderr + done.stdout
        return done.stdout + done.stderr

    @contextmanager
    def started(self, *argv: str) -> Iterator[subprocess.Popen[bytes]]:
        """A Python program that runs meanwhile."""
        with subprocess.Popen(
            [sys.executable, *argv], cwd=self.folder, env=self.environ
        ) as process:
            try:
                yield process
            finally:
                process.terminate()
                process.wait(60)

    def call(
        self, path: str, body: Any = None, *, form: dict[str, str] | None = None, **headers: str
    ) -> tuple[int, str]:
        """Call it; return status and text. A body is sent as JSON."""
        data = json.dumps(body).encode() if body is not None else None
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if data is not None:
            given["content-type"] = "application/json"
        if form is not None:
            data = urllib.parse.urlencode(form).encode()
        request = urllib.request.Request(self.address + path, data, given)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def wait_for(self, path: str, text: str, seconds: float = 60.0) -> str:
        """Call it until the answer has this text."""
        end, found = time.monotonic() + seconds, ""
        while time.monotonic() < end:
            try:
                found = self.call(path)[1]
            except OSError as error:  # not started yet
                found = str(error)
            if text in found:
                return found
            time.sleep(0.1)
        raise AssertionError(f"{path}: {text!r} is not in {found!r}")


def test_fastapi_and_sqlalchemy(postgres: str) -> None:
    site = Site(EXAMPLES / "fastapi_app", DATABASE_URL=postgres, ESCLUSA_STORE=postgres)
    url = postgres.replace("postgresql://", "postgresql+psycopg://")
    tables = f"Base.metadata.create_all(sqlalchemy.create_engine({url!r}))"
    site.run("-c", f"import sqlalchemy; from models import Base; {tables}")
    site.environ["ESCLUSA_PIPELINES"] = "pipeline:app"
    assert "orders" in site.run("-m", "esclusa", "migrate", "--yes")
    port = free_port()
    site.address = f"http://127.0.0.1:{port}"
    with site.started("-m", "uvicorn", "main:app", "--port", str(port)) as process:
        site.wait_for("/openapi.json", "/orders")
        assert site.call("/orders", {"number": "1", "amount": 20})[0] == 201
        shown = json.loads(site.wait_for("/orders/1", '"charged"'))
        assert shown == {"status": "charged", "receipt": "R-1"}
        assert site.call("/orders", {"number": "2", "amount": -1})[0] == 422
        assert site.call("/orders/2")[0] == 404  # rolled back
        assert site.call("/orders", {"number": "3", "amount": 5000})[0] == 201
        site.wait_for("/orders/3", '"refused"')

        # The console and the API are the application's, with its own users.
        assert site.call("/ops/api/kinds")[0] == 401
        assert site.call("/ops/")[0] == 401
        assert site.call("/ops/healthz")[0] == 200
        status, page = site.call("/ops/", x_user="eva")
        assert (status, 'href="/ops/console/static/' in page) == (200, True)
        status, listed = site.call("/ops/api/records/orders?status=refused", x_user="eva")
        [refused] = json.loads(listed)["items"]
        assert (status, refused["number"]) == (200, "3")
        move = {"ids": [refused["id"]], "to": "placed", "reason": "the limit was raised"}
        assert site.call("/ops/api/records/orders/move", move, x_user="eva")[0] == 403
        other_site = {"x_user": "ana", "sec_fetch_site": "cross-site"}
        assert site.call("/ops/api/records/orders/move", move, **other_site)[0] == 403
        status, moved = site.call("/ops/api/records/orders/move", move, x_user="ana")
        assert (status, json.loads(moved)["moved"]) == (200, 1)
        site.wait_for("/orders/3", '"refused"')
        history = site.call(f"/ops/api/records/orders/{refused['id']}/history", x_user="eva")[1]
        assert "api:ana" in {step["who"] for step in json.loads(history)["items"]}
        process.terminate()
        assert process.wait(60) in (0, -15)


def test_django(postgres: str) -> None:
    site = Site(EXAMPLES / "django_app", DATABASE_URL=postgres)
    site.run("manage.py", "migrate")
    assert "orders" in site.run("manage.py", "esclusa", "migrate", "--yes")
    assert "No changes detected" in site.run("manage.py", "makemigrations", "--check")
    user = "from django.contrib.auth.models import User; User.objects.create_superuser"
    site.run("manage.py", "shell", "-c", f"{user}('ana', password='secret')")
    port = free_port()
    site.address = f"http://127.0.0.1:{port}"
    server = ["manage.py", "runserver", "--noreload", f"127.0.0.1:{port}"]
    with site.started(*server), site.started("manage.py", "esclusa", "worker") as worker:
        site.wait_for("/orders/0", "Not Found")
        assert site.call("/orders", {"number": "1", "amount": "20"})[0] == 201
        shown = json.loads(site.call("/orders/1?wait")[1])
        assert (shown["status"], shown["receipt"]) == ("charged", "R-1")
        site.wait_for("/orders/1", '"letters": 2')
        assert site.call("/orders", {"number": "2", "amount": "-1"})[0] == 422
        assert site.call("/orders/2")[0] == 404  # rolled back
        assert site.call("/orders", {"number": "3", "amount": "5000"})[0] == 201
        assert json.loads(site.call("/orders/3?wait")[1])["status"] == "refused"
        retry_in_the_admin(site.address)
        history = json.loads(site.run("manage.py", "esclusa", "show", "orders", "3", "--json"))
        assert "django:ana" in {step["who"] for step in history["history"]}
        worker.terminate()
        assert worker.wait(60) == 0


def retry_in_the_admin(address: str) -> None:
    """Sign in to the admin, choose every order, and retry what failed."""
    jar = urllib.request.HTTPCookieProcessor()
    browser = urllib.request.build_opener(jar)

    def send(path: str, **form: str) -> str:
        page = browser.open(address + path, timeout=30).read().decode()
        form["csrfmiddlewaretoken"] = hidden(page, "csrfmiddlewaretoken")
        ids = [("_selected_action", id) for id in re.findall(r'action" value="([0-9]+)"', page)]
        data = urllib.parse.urlencode([*form.items(), *ids]).encode()
        answer: bytes = browser.open(address + path, data, timeout=30).read()
        return answer.decode()

    send("/admin/login/", username="ana", password="secret", next="/admin/")
    done = send("/admin/shop/order/", action="retry_orders")
    assert "1 of 2 sent back to be handled; 1 had not failed" in done


def hidden(page: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]+)"', page)
    assert found, page
    return found[1]
