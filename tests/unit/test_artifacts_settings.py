"""The artifact store of a URL, and errors of wrong settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from esclusa.artifacts import open_artifacts
from esclusa.artifacts.local import LocalArtifacts
from esclusa.artifacts.s3 import S3Artifacts
from esclusa.model.errors import SettingsError

KEYS = {
    "AWS_ACCESS_KEY_ID": "an-id",
    "AWS_SECRET_ACCESS_KEY": "a-secret",
    "AWS_SESSION_TOKEN": "a-token",
    "AWS_REGION": "sa-east-1",
}


def test_folder_by_path_or_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url, folder in {
        "./artifacts": tmp_path / "artifacts",
        "artifacts": tmp_path / "artifacts",
        "/srv/kept": Path("/srv/kept"),
        "file:///srv/kept": Path("/srv/kept"),
        "file://localhost/srv/kept": Path("/srv/kept"),
        "file:///srv/two%20words": Path("/srv/two words"),
    }.items():
        store = open_artifacts(url, environ={})
        assert isinstance(store, LocalArtifacts)
        assert store.root == folder
        assert store.public_url("a b/ñ.txt") == folder.as_uri() + "/a%20b/%C3%B1.txt"
    assert not (tmp_path / "artifacts").exists()


def test_bucket_with_and_without_prefix() -> None:
    store = open_artifacts("s3://bucket/some/prefix/", environ=KEYS)
    assert isinstance(store, S3Artifacts)
    assert store.url == "s3://bucket/some/prefix"
    assert (
        store.public_url("a b.txt")
        == "https://bucket.s3.sa-east-1.amazonaws.com/some/prefix/a%20b.txt"
    )
    store = open_artifacts(
        "s3://bucket", environ=KEYS | {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000/"}
    )
    assert (store.url, store.public_url("x")) == ("s3://bucket", "http://127.0.0.1:9000/bucket/x")
    store = open_artifacts("s3://bucket/p", environ=KEYS, public_url="https://cdn.example/media/")
    assert store.public_url("x/ñ") == "https://cdn.example/media/x/%C3%B1"


def test_secrets_are_never_shown() -> None:
    store = open_artifacts("s3://bucket", environ=KEYS)
    assert not any(
        secret in f"{store!r} {store.url} {store}" for secret in ("an-id", "a-secret", "a-token")
    )


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://host/x", "unknown scheme ftp://; allowed are"),
        ("gopher://x", "unknown scheme"),
        ("file://srv/kept", "three slashes"),
        ("file://", "no folder"),
        ("", "no folder"),
        ("a\0b", "no folder"),
        ("s3://", "no bucket"),
        ("s3://bucket?region=x", "takes no ?"),
        ("s3://bucket/../other", "'..'"),
        ("s3://bucket/" + "x" * 200, "longer than"),
        ("s3://an-id:hidden@bucket", "keys do not belong in the URL"),
    ],
)
def test_wrong_url_is_reported(url: str, message: str) -> None:
    with pytest.raises(SettingsError, match="ESCLUSA_ARTIFACTS") as caught:
        open_artifacts(url, environ=KEYS)
    assert message in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"AWS_ENDPOINT_URL": "127.0.0.1:9000"}, "AWS_ENDPOINT_URL"),
        ({"AWS_ENDPOINT_URL": "http://me:hidden@host"}, "AWS_ENDPOINT_URL"),
        ({"AWS_ACCESS_KEY_ID": "singleton"}, "AWS_SECRET_ACCESS_KEY"),
    ],
)
def test_wrong_environment_is_reported(environ: dict[str, str], name: str) -> None:
    with pytest.raises(SettingsError, match=name) as caught:
        open_artifacts("s3://bucket", environ=environ)
    assert "hidden" not in str(caught.value)


def test_wrong_public_url() -> None:
    with pytest.raises(SettingsError, match="ESCLUSA_ARTIFACTS_PUBLIC_URL"):
        open_artifacts("./x", public_url="cdn.example")


def test_folder_loads_no_cloud_library() -> None:
    code = (
        "import sys; from esclusa.artifacts import open_artifacts; open_artifacts('./x');"
        "print('obstore' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
