"""What an exception of a tool proves about the world.

Three answers are possible: ``"no"`` (surely nothing was done), ``"unknown"`` (it may have been done), and
None (the class of the tool decides). What counts is where the exception came from: a connection that was
refused carried no request, one that was reset may have.

Types of other packages are looked up when one of their exceptions arrives. Nothing is imported for that.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import http.client
import smtplib
import socket
import ssl
import subprocess
import sys
import urllib.error
from typing import Any, Dict, Optional, Sequence, Tuple, Type, Union

from . import _errors
from ._json import bad_text, dumps

__all__ = ["Judge", "failure_value"]

Types = Union[Type[BaseException], Sequence[Type[BaseException]]]

#: What is sure before anything else is looked at.
_first: Tuple[Tuple[Type[BaseException], Optional[str]], ...] = (
    (_errors.NotApplied, "no"),
    (_errors.Unknown, "unknown"),
    # A tool inside of this tool:
    (_errors.InDoubt, "unknown"),
    (_errors.UpstreamTimeout, "unknown"),
    (_errors.Unrecorded, "unknown"),
    (KeyboardInterrupt, "unknown"),
    (SystemExit, "unknown"),
    (GeneratorExit, "unknown"),
)

#: The exceptions of the standard library. A type stands before its bases.
_builtin: Tuple[Tuple[Type[BaseException], Optional[str]], ...] = (
    (asyncio.CancelledError, "unknown"),
    (concurrent.futures.CancelledError, "unknown"),
    (concurrent.futures.TimeoutError, "unknown"),
    (asyncio.TimeoutError, "unknown"),
    (ConnectionRefusedError, "no"),
    (ConnectionError, "unknown"),
    (socket.gaierror, "no"),
    (ssl.SSLCertVerificationError, "no"),
    (ssl.SSLError, "unknown"),
    (TimeoutError, "unknown"),
    (socket.timeout, "unknown"),
    (subprocess.TimeoutExpired, "unknown"),
    (http.client.HTTPException, "unknown"),
    (smtplib.SMTPServerDisconnected, "unknown"),
    (EOFError, "unknown"),
)

#: Those of packages, by the module and the name of the type. The first that fits decides.
_known: Dict[str, Tuple[Tuple[str, Optional[str]], ...]] = {
    "httpx": (
        ("ConnectError", "no"),
        ("ConnectTimeout", "no"),
        ("PoolTimeout", "no"),
        ("UnsupportedProtocol", "no"),
        ("InvalidURL", "no"),
        ("ProxyError", "no"),
        ("RequestError", "unknown"),
    ),
    "requests": (
        ("exceptions.ConnectTimeout", "no"),
        ("exceptions.SSLError", "unknown"),
        ("exceptions.ProxyError", "cause"),
        ("exceptions.MissingSchema", "no"),
        ("exceptions.InvalidSchema", "no"),
        ("exceptions.InvalidURL", "no"),
        ("exceptions.Timeout", "unknown"),
        ("exceptions.ConnectionError", "cause"),
        ("exceptions.ChunkedEncodingError", "unknown"),
        ("exceptions.RequestException", "unknown"),
    ),
    "urllib3": (
        ("exceptions.NewConnectionError", "no"),
        ("exceptions.NameResolutionError", "no"),
        ("exceptions.ConnectTimeoutError", "no"),
        ("exceptions.MaxRetryError", "cause"),
        ("exceptions.TimeoutError", "unknown"),
        ("exceptions.ProtocolError", "unknown"),
        ("exceptions.HTTPError", "unknown"),
    ),
    "aiohttp": (
        ("ClientConnectorError", "no"),
        ("ConnectionTimeoutError", "no"),
        ("InvalidURL", "no"),
        ("ServerTimeoutError", "unknown"),
        ("ClientPayloadError", "unknown"),
        ("ClientError", "unknown"),
    ),
    "psycopg": (("OperationalError", "unknown"), ("InterfaceError", "unknown")),
    "psycopg2": (("OperationalError", "unknown"), ("InterfaceError", "unknown")),
    "botocore": (
        ("exceptions.EndpointConnectionError", "no"),
        ("exceptions.ConnectTimeoutError", "no"),
        ("exceptions.NoCredentialsError", "no"),
        ("exceptions.ParamValidationError", "no"),
        ("exceptions.HTTPClientError", "unknown"),
    ),
    "anyio": (("BrokenResourceError", "unknown"), ("ClosedResourceError", "unknown")),
    "trio": (
        ("Cancelled", "unknown"),
        ("TooSlowError", "unknown"),
        ("BrokenResourceError", "unknown"),
    ),
}  # fmt: skip

#: What a status of gRPC proves. ABORTED and the like are answers: the class decides.
_grpc = {
    "INVALID_ARGUMENT": "no", "NOT_FOUND": "no", "ALREADY_EXISTS": "no", "PERMISSION_DENIED": "no",
    "UNAUTHENTICATED": "no", "FAILED_PRECONDITION": "no", "OUT_OF_RANGE": "no",
    # These may also be said of the answer:
    "RESOURCE_EXHAUSTED": "unknown", "UNIMPLEMENTED": "unknown", "ABORTED": "unknown",
    "CANCELLED": "unknown", "DEADLINE_EXCEEDED": "unknown", "UNAVAILABLE": "unknown",
    "UNKNOWN": "unknown", "INTERNAL": "unknown", "DATA_LOSS": "unknown",
}  # fmt: skip


class Judge:
    """Says what exceptions prove, by the lists of one tool first and by what is known of libraries then."""

    __slots__ = ("_own",)

    def __init__(
        self,
        not_applied: Optional[Types] = None,
        unknown: Optional[Types] = None,
        applied: Optional[Types] = None,
    ) -> None:
        self._own = tuple(
            (kinds, word)
            for kinds, word in (
                (_types(not_applied), "no"),
                (_types(unknown), "unknown"),
                (_types(applied), "yes"),
            )
            if kinds
        )

    def __call__(self, error: BaseException) -> Tuple[Optional[str], Optional[int]]:
        """Whether the world was changed, and the HTTP status of the answer if there was one."""
        found = _judge(error, self._own, 0)
        return ("unknown", found[1]) if found[0] is None and _hides_doubt(error, self._own) else found


def _types(given: Optional[Types]) -> Tuple[Type[BaseException], ...]:
    if given is None:
        return ()
    kinds = (given,) if isinstance(given, type) else tuple(given)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TypeError(f"{kind!r} is not a type of exceptions")
    return kinds


Own = Tuple[Tuple[Tuple[Type[BaseException], ...], str], ...]


def _hides_doubt(error: BaseException, own: Own) -> bool:
    """Whether an exception that says nothing was raised because of one after which nobody knows: SDKs wrap
    their timeouts."""
    seen = {id(error)}
    for _ in range(_depth_max):
        inner = error.__cause__ or error.__context__
        if inner is None or id(inner) in seen:
            return False
        if _judge(inner, own, 0)[0] == "unknown":
            return True
        seen.add(id(inner))
        error = inner
    return False


_depth_max = 8


def _judge(error: BaseException, own: Own, depth: int) -> Tuple[Optional[str], Optional[int]]:
    for types, said in own:
        if isinstance(error, types):
            return said, _status(error)
    for kind, word in _first:
        if isinstance(error, kind):
            return word, None
    group = getattr(error, "exceptions", None)  # ExceptionGroup: the worst of them
    if isinstance(group, tuple) and depth < _depth_max:
        words = [_judge(one, own, depth + 1)[0] for one in group if isinstance(one, BaseException)]
        if "unknown" in words:
            return "unknown", None
        return ("no" if words and all(w == "no" for w in words) else None), None
    status = _status(error)
    if status is not None:
        return ("unknown" if _went_on(error) else _by_status(status)), status
    if isinstance(error, urllib.error.URLError):
        reason = error.reason
        if isinstance(reason, BaseException) and depth < _depth_max:
            return _judge(reason, own, depth + 1)
        return None, None
    code = _grpc_code(error)
    if code is not None:
        return _grpc.get(code), None
    for package, kinds in _known.items():
        module = sys.modules.get(package)
        if module is None:
            continue
        for name, word in kinds:
            found = _find(module, name)
            if found is not None and isinstance(error, found):
                return (_cause(error, own, depth) if word == "cause" else word), None
    for kind, word in _builtin:
        if isinstance(error, kind):
            return word, None
    return None, None


def _find(module: Any, path: str) -> Optional[Type[BaseException]]:
    for name in path.split("."):
        module = getattr(module, name, None)
    return module if isinstance(module, type) and issubclass(module, BaseException) else None


def _cause(error: BaseException, own: Own, depth: int) -> str:
    """requests and urllib3 wrap what happened: "no" only if what they wrap says so."""
    inner: Any = getattr(error, "reason", None)
    if inner is None and error.args:
        inner = error.args[0]
    if isinstance(inner, BaseException) and depth < _depth_max:
        return _judge(inner, own, depth + 1)[0] or "unknown"
    return "unknown"


def _status(error: BaseException) -> Optional[int]:
    """The HTTP status of the answer that the exception is about."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # boto
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    elif response is not None:  # requests, httpx
        status = getattr(response, "status_code", None)
    else:  # aiohttp, stripe, openai
        status = getattr(error, "status", None)
        if status is None:
            status = getattr(error, "http_status", None)
    if isinstance(status, int) and not isinstance(status, bool) and 100 <= status <= 599:
        return status
    return None


def _by_status(status: int) -> str:
    """A 4xx is a rejection, and 307 and 308 ask for the same request elsewhere: nothing was done. After any
    other answer it may have been."""
    return "no" if 400 <= status < 500 or status in (307, 308) else "unknown"


def _went_on(error: BaseException) -> bool:
    """Whether the answer is not the first one: a redirect was followed, or the request was sent again."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return bool(response.get("ResponseMetadata", {}).get("RetryAttempts"))
    history = getattr(response, "history", None)
    return isinstance(history, (list, tuple)) and len(history) > 0


def _grpc_code(error: BaseException) -> Optional[str]:
    grpc = sys.modules.get("grpc")
    kind = getattr(grpc, "RpcError", None)
    if kind is None or not isinstance(error, kind):
        return None
    code = getattr(error, "code", None)
    name = getattr(code() if callable(code) else code, "name", None)
    return name if isinstance(name, str) else "UNKNOWN"


def failure_value(error: BaseException) -> str:
    """What is recorded of an exception, so that a replay can say the same: type, message, value."""
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__", "__mp_main__"):
        name = f"{kind.__module__}.{name}"
    try:
        message = str(error)
    except Exception:
        message = ""
    if isinstance(error, _errors.Refused):
        message = error.message
    text = '{"type":' + dumps(bad_text(name)) + ',"message":' + dumps(bad_text(message[:_message_max]))
    value = getattr(error, "value", None)
    if value is not None:
        try:
            kept = dumps(value)
            kept.encode()
            if len(kept) <= _message_max:
                text += ',"value":' + kept
        except Exception:
            pass  # the message is enough
    return text + "}"


_message_max = 64 * 1024
