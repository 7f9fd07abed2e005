"""Settings by the environment: keys, profiles, endpoints, and a library that may be missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from seaweedmq.errors import InvalidArgument, StorageFailed, Unsupported
from seaweedmq.storage.objects.obstore_objects import ObstoreObjects
from seaweedmq.storage.objects.uri import ObjectsUri
from tests.support.moto_server import KEY_ID, SECRET, MotoServer, point_to
from tests.support.object_proxy import ObjectProxy

URI = ObjectsUri("s3", "bucket", "prefix")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No setting of the machine counts. Return the home."""
    for name in ("AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AZURE_STORAGE_ACCOUNT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_the_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(Unsupported, match=r"pip install 'seaweedmq\[objects\]'"):
        ObstoreObjects(URI)


@pytest.mark.parametrize("host", ["127.0.0.1:9000", "localhost:9000", "[::1]:9000"])
def test_http_to_this_machine_is_allowed(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}")
    ObstoreObjects(URI)


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_http_to_other_machines_must_be_allowed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setenv(name, "http://minio.example:9000")
    with pytest.raises(InvalidArgument, match="use https, or set AWS_ALLOW_HTTP=true"):
        ObstoreObjects(URI)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    ObstoreObjects(URI)


def test_azure_needs_an_account() -> None:
    with pytest.raises(InvalidArgument, match="AZURE_STORAGE_ACCOUNT_NAME"):
        ObstoreObjects(ObjectsUri("az", "container", "prefix"))


def test_a_setting_that_the_library_rejects_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "hush, no base64")
    with pytest.raises(InvalidArgument, match="AZURE_STORAGE_ACCOUNT_KEY") as raised:
        ObstoreObjects(ObjectsUri("az", "container", "prefix"))
    assert "hush" not in str(raised.value)


async def test_the_keys_of_a_profile(
    moto: MotoServer, proxy: ObjectProxy, clean: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = moto.new_bucket()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_PROFILE", "staging")
    (clean / ".aws").mkdir()
    (clean / ".aws" / "credentials").write_text(
        f"[staging]\naws_access_key_id={KEY_ID}2\naws_secret_access_key={SECRET}\n"
    )
    (clean / ".aws" / "config").write_text("[profile staging]\nregion=eu-west-1\n")
    await ObstoreObjects(ObjectsUri.parse(f"s3://{bucket}/p")).create("a", [b"1"])
    assert f"Credential={KEY_ID}2/".encode() in proxy.requests[-1].head
    assert b"/eu-west-1/s3/" in proxy.requests[-1].head
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    await ObstoreObjects(ObjectsUri.parse(f"s3://{bucket}/p")).head("a")
    assert b"/eu-north-1/s3/" in proxy.requests[-1].head


def test_a_profile_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.setenv("AWS_PROFILE", "nowhere")
    with pytest.raises(InvalidArgument, match="AWS_PROFILE 'nowhere' has no keys"):
        ObstoreObjects(URI)


def test_a_profile_needs_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.setenv("AWS_PROFILE", "staging")
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(Unsupported, match="pip install boto3"):
        ObstoreObjects(URI)


async def test_a_machine_without_keys(proxy: ObjectProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{proxy.port}")
    with pytest.raises(StorageFailed):
        await ObstoreObjects(URI).get("a", timeout_s=0.5)


def test_keys_of_the_environment_win_over_profiles(
    moto: MotoServer, clean: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point_to(moto, monkeypatch.setenv, monkeypatch.delenv)
    monkeypatch.setenv("AWS_PROFILE", "nowhere")
    ObstoreObjects(URI)


FORKING = """
import os
from seaweedmq.errors import StorageFailed, Unsupported
from seaweedmq.storage.objects.blocking import BlockingObjects
from seaweedmq.storage.objects.obstore_objects import ObstoreObjects
from seaweedmq.storage.objects.uri import ObjectsUri

def attempt():
    try:
        BlockingObjects(ObstoreObjects(ObjectsUri("s3", "bucket", "prefix"))).get("a", timeout_s=0.3)
    except Exception as error:
        return f"{type(error).__name__}: {error}"

used_before = os.environ["USED"] == "before"
first = attempt() if used_before else ""
if os.fork():
    os.wait()
else:
    print(attempt(), flush=True)
    os._exit(0)
"""


@pytest.mark.parametrize(("used", "expected"), [("before", "Unsupported: process"), ("later", "StorageFailed: cannot")])
def test_a_fork_of_a_process_that_used_a_store_is_rejected(used: str, expected: str) -> None:
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "USED": used}
    environment["AWS_ENDPOINT_URL"] = "http://127.0.0.1:1"
    done = subprocess.run(
        [sys.executable, "-c", FORKING], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith(expected)
    assert ("start processes with spawn" in done.stdout) == (used == "before")
