"""A server of S3 by moto, in a thread of this process, and the environment by which clients find it."""

import io
import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

KEY_ID = "AKIDOFTHETESTS"
SECRET = "secret-of-the-tests-0123456789"
"""Secret key, which no text may show."""
_AWS = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_ALLOW_HTTP")


@dataclass(slots=True)
class MotoServer:
    """A running server."""

    port: int
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def environment(self, port: int = 0) -> dict[str, str]:
        """Return the variables of clients of this server, or of a proxy at another port."""
        return {
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port or self.port}",
        }

    def new_bucket(self, name: str = "") -> str:
        """Create an empty bucket."""
        import boto3

        name = name or f"bucket-{os.getpid()}-{next(self._numbers)}"
        boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{self.port}",
            aws_access_key_id=KEY_ID,
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
        ).create_bucket(Bucket=name)
        return name


class AtomicApplication:
    """moto's application with atomic writes.

    moto 5.2 checks If-None-Match and then stores, while other threads do the same: two creations may both succeed.
    """

    def __init__(self, inner: Callable[..., Iterable[bytes]]) -> None:
        self._inner = inner
        self._writing = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return self._inner(environ, start_response)
        # Read first, so that a slow sender does not hold up the others.
        environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))
        with self._writing:
            return list(self._inner(environ, start_response))


@contextmanager
def running_moto() -> Iterator[MotoServer]:
    """Run a server at a free port of 127.0.0.1."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = AtomicApplication(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=MotoRequestHandler)
    thread = threading.Thread(target=server.serve_forever, name="moto", daemon=True)
    thread.start()
    try:
        yield MotoServer(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def point_to(moto: MotoServer, setenv: Callable[[str, str], None], delenv: Callable[..., None], port: int = 0) -> None:
    """Make clients of this process use the server, or a proxy of it, by a test's ``monkeypatch``."""
    for name in _AWS:
        delenv(name, raising=False)
    for name, value in moto.environment(port).items():
        setenv(name, value)
