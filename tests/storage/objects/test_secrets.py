"""No secret in any text, representation, log or pickle."""

import logging
import math
import pickle
import traceback

import pytest

from seaweedmq.errors import StorageFailed
from seaweedmq.storage.objects.blocking import BlockingObjects
from seaweedmq.storage.objects.obstore_objects import ObstoreObjects
from tests.support.moto_server import KEY_ID, SECRET
from tests.support.object_proxy import FaultKind, ObjectProxy

TOKEN = "session-token-of-the-tests"
SECRETS = (SECRET, TOKEN, KEY_ID, "Signature")


@pytest.fixture(autouse=True)
def token(proxy: ObjectProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)


def assert_no_secret(text: str) -> None:
    for secret in SECRETS:
        assert secret not in text


def test_representations_and_pickles_have_the_uri_only(objects: ObstoreObjects) -> None:
    for each in (objects, BlockingObjects(objects)):
        assert_no_secret(repr(each) + str(each) + f"{each}")
        assert objects.uri in repr(each)
        pickled = pickle.dumps(each)
        assert_no_secret(pickled.decode("latin-1"))
        assert pickle.loads(pickled).uri == objects.uri


async def test_a_pickled_store_works(objects: ObstoreObjects) -> None:
    await objects.create("a", [b"1"])
    again = pickle.loads(pickle.dumps(objects))
    assert bytes((await again.get("a")).content) == b"1"


@pytest.mark.parametrize(
    ("kind", "chosen"),
    [
        (FaultKind.STATUS, {"status": 403, "code": "SignatureDoesNotMatch"}),
        (FaultKind.STATUS, {"status": 400, "code": "ExpiredToken"}),
        (FaultKind.STATUS, {"status": 500}),
        (FaultKind.RESET, {}),
        (FaultKind.HANG, {}),
    ],
)
async def test_errors_and_logs(
    objects: ObstoreObjects,
    proxy: ObjectProxy,
    caplog: pytest.LogCaptureFixture,
    kind: FaultKind,
    chosen: dict[str, object],
) -> None:
    caplog.set_level(logging.DEBUG)
    proxy.inject(kind, times=math.inf, **chosen)
    writer = objects.open_writer("b", timeout_s=0.5)
    await writer.write(b"1")
    calls = [objects.create("a", [b"1"], timeout_s=0.5), objects.list_folder(timeout_s=0.5), writer.close()]
    for call in calls:
        with pytest.raises(StorageFailed) as raised:
            await call  # type: ignore[misc]
        error = raised.value
        text = "".join(traceback.format_exception(error)) + repr(error) + pickle.dumps(error).decode("latin-1")
        assert_no_secret(text.replace("SignatureDoesNotMatch", ""))
    assert_no_secret(caplog.text.replace("SignatureDoesNotMatch", ""))
    assert "echoed" not in caplog.text


async def test_what_the_store_echoes_is_not_shown(objects: ObstoreObjects, proxy: ObjectProxy) -> None:
    echo = f"AccessDenied</Code><StringToSign>{KEY_ID} {TOKEN}</StringToSign><Code>AccessDenied"
    proxy.inject(FaultKind.STATUS, times=math.inf, status=403, code=echo)
    with pytest.raises(StorageFailed, match="not permitted") as raised:
        await objects.create("a", [b"1"])
    assert_no_secret("".join(traceback.format_exception(raised.value)))


async def test_a_signed_url_works_without_keys_and_is_not_logged(
    objects: ObstoreObjects, proxy: ObjectProxy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = await objects.sign("PUT", "a b/ü", expires_s=60)
    assert "X-Amz-Expires=60" in url
    assert SECRET not in url
    assert_no_secret(caplog.text)
