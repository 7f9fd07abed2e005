"""Clients of ``obstore`` by the URI of a storage and the environment.

``obstore`` reads the environment itself (``AWS_*``, ``GOOGLE_*``, ``AZURE_*``). This module adds AWS profiles, by boto3
where it is installed, and permits http where nothing leaves the machine or ``AWS_ALLOW_HTTP`` permits it.
"""

import ipaddress
import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from seaweedmq.errors import InvalidArgument, Unsupported
from seaweedmq.storage.objects.uri import ObjectsUri

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, S3Store

    Store: TypeAlias = S3Store | GCSStore | AzureStore

ANSWER_S_MAX = 3600.0
"""Limit of one request in the client library; ``requests`` ends requests earlier."""
CONNECT_S_MAX = 5.0
PART_ATTEMPTS_MAX = 10
"""Attempts of a part, which ``obstore`` retries itself: by its number, a retried part is the same part."""
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
         "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_SKIP_SIGNATURE")  # fmt: skip
"""Variables by which ``obstore`` finds keys without a profile."""
INSTALL = "pip install 'seaweedmq[objects]'"


def library() -> Any:
    """Return the module ``obstore``, or raise Unsupported with the command that installs it."""
    try:
        import obstore
    except ImportError as e:
        raise Unsupported(f"storage in an object store needs obstore, which is not installed: {INSTALL}") from e
    return obstore


def client_of(uri: ObjectsUri, *, attempts_max: int = 1) -> "Store":
    """Return a client of the objects below the prefix, which retries a request up to ``attempts_max`` times.

    Raises:
        Unsupported: If ``obstore``, or boto3 for a profile, is not installed.
        InvalidArgument: If the environment has a setting that cannot work.
    """
    library()
    from obstore.exceptions import BaseError
    from obstore.store import AzureStore, GCSStore, S3Store

    retries: Any = {"max_retries": attempts_max - 1, "retry_timeout": timedelta(seconds=ANSWER_S_MAX)}
    options: Any = {"timeout": f"{ANSWER_S_MAX:g}s", "connect_timeout": f"{CONNECT_S_MAX:g}s"}
    try:
        if uri.scheme == "s3":
            options["allow_http"] = _allows_http()
            profile = _profile()
            return S3Store(uri.bucket, prefix=uri.prefix, client_options=options, retry_config=retries, **profile)
        options["allow_http"] = _is_true(os.environ.get(f"{'GOOGLE' if uri.scheme == 'gs' else 'AZURE'}_ALLOW_HTTP"))
        if uri.scheme == "gs":
            return GCSStore(uri.bucket, prefix=uri.prefix, client_options=options, retry_config=retries)
        return AzureStore(uri.bucket, prefix=uri.prefix, client_options=options, retry_config=retries)
    except (BaseError, ValueError):  # its text may hold the rejected setting, and so a key
        raise InvalidArgument(f"the environment has no valid settings for {uri}: {_VARIABLES[uri.scheme]}") from None


_VARIABLES = {
    "s3": "check AWS_ENDPOINT_URL, AWS_REGION and the other AWS_ variables",
    "gs": "set GOOGLE_SERVICE_ACCOUNT to the file of a service account, and check the other GOOGLE_ variables",
    "az": "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, and check the other AZURE_ variables",
}


def _allows_http() -> bool:
    """Whether the endpoint of S3 is http, and may be; raises InvalidArgument if it must not."""
    endpoint = next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), "")
    if not endpoint.startswith("http://"):
        return False
    if _is_true(os.environ.get("AWS_ALLOW_HTTP")) or _is_loopback(urlsplit(endpoint).hostname or ""):
        return True
    raise InvalidArgument(
        "AWS_ENDPOINT_URL is http to another machine, readable by all between: use https, or set AWS_ALLOW_HTTP=true"
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_true(value: str | None) -> bool:
    return (value or "").lower() in ("1", "true", "yes", "on")


def _profile() -> dict[str, Any]:
    """Return the keys and the region of the profile of AWS that the environment names, or of the default one."""
    if any(os.environ.get(name) for name in _KEYS):
        return {}
    named = os.environ.get("AWS_PROFILE")
    files = [
        Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")),
        Path(os.environ.get("AWS_CONFIG_FILE", "~/.aws/config")),
    ]
    if not named and not any(file.expanduser().exists() for file in files):
        return {}
    try:
        import boto3
        from botocore.exceptions import BotoCoreError
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as e:
        if not named:
            return {}
        raise Unsupported(
            f"AWS_PROFILE {named!r} needs boto3, which is not installed: pip install boto3, or set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        ) from e
    try:
        provider = Boto3CredentialProvider(boto3.Session(profile_name=named))
    except (BotoCoreError, ValueError) as e:
        raise InvalidArgument(
            f"AWS_PROFILE {named or 'default'!r} has no keys ({type(e).__name__}): correct it in ~/.aws, or set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        ) from None
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region:
        provider.config["region"] = region  # obstore takes that of the profile otherwise
    return {"credential_provider": provider}
