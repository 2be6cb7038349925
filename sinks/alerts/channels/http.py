"""One POST over HTTP, and what its answer means: shared by the channels that speak it."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlsplit

from sinks.alerts.channels.base import ChannelError

AGAIN: Final = frozenset({408, 425, 429})
PATIENCE_S: Final = 10.0
SHOWN: Final = 200


def post(
    url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float = PATIENCE_S, ca_file: str = ""
) -> tuple[int, bytes]:
    """Status and the beginning of the answer of a POST that was taken (2xx). Redirections are not followed.

    Raises ChannelError: to be tried again for a network error, 408, 425, 429 and 5xx, with what Retry-After says; not
    for another status or a URL that is none. The error names the host only: a path may hold a secret.
    """
    parts = urlsplit(url)
    host = parts.hostname
    if parts.scheme not in ("http", "https") or host is None:
        raise ChannelError("the url must begin with https:// or http:// and name a host", again=False)
    try:
        connection = _connect(parts.scheme, host, parts.port, timeout_s, ca_file)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        try:
            connection.request("POST", target, body, {"User-Agent": "reveal-alerts", **headers})
            with connection.getresponse() as answer:
                status, text = answer.status, answer.read1(2048)
                retry_after = answer.headers.get("Retry-After")
        finally:
            connection.close()
    except TimeoutError:
        raise ChannelError(f"{host} did not answer within {timeout_s:g} s", again=True) from None
    except ssl.SSLCertVerificationError as error:
        raise ChannelError(f"{host}: {error.verify_message}", again=True) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ChannelError(f"{host}: {type(error).__name__}: {error}", again=True) from None
    if 200 <= status < 300:
        return status, text
    told = " ".join(text.decode("utf-8", "replace").split())[:SHOWN]
    raise ChannelError(
        f"{host} answered {status}{f': {told}' if told else ''}",
        again=status >= 500 or status in AGAIN,
        code=status,
        retry_after_s=retry_seconds(retry_after, time.time()),
    )


def post_json(
    url: str,
    content: Any,
    headers: Mapping[str, str] | None = None,
    *,
    timeout_s: float = PATIENCE_S,
    ca_file: str = "",
) -> tuple[int, bytes]:
    """`post` of JSON."""
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    kind = {"Content-Type": "application/json; charset=utf-8"}
    return post(url, body, {**kind, **(headers or {})}, timeout_s=timeout_s, ca_file=ca_file)


def retry_seconds(value: str | None, now_s: float) -> float | None:
    """Seconds that a Retry-After header means: a number, or a date (RFC 9110, 10.2.3). None for anything else."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now_s)
    except (TypeError, ValueError):
        return None


def _connect(scheme: str, host: str, port: int | None, timeout_s: float, ca_file: str) -> http.client.HTTPConnection:
    if scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=timeout_s)
    context = ssl.create_default_context(cafile=ca_file or None)
    return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
