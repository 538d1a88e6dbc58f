"""Requests as texts, one function for each operation. The members are those of the HTTP API."""

from __future__ import annotations

import datetime
from typing import Any, Dict, Iterable, List, Optional, Union

from ._errors import bad_arguments
from ._json import dumps
from ._values import Since

__all__: List[str] = []


def request(op: str, **members: Any) -> bytes:
    """A request; members that are None are left out."""
    given: Dict[str, Any] = {"op": op}
    given.update((k, v) for k, v in members.items() if v is not None)
    try:
        return dumps(given).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise bad_arguments(f"{op}: {error}") from None


def when(given: Optional[Since]) -> Optional[str]:
    """A time as the HTTP API takes it."""
    if isinstance(given, datetime.timedelta):
        return f"{max(0, int(given.total_seconds() * 1000))}ms"
    if isinstance(given, datetime.datetime):
        if given.tzinfo is None:
            given = given.astimezone()
        utc = given.astimezone(datetime.timezone.utc)
        return utc.strftime("%Y-%m-%dT%H:%M:%S.") + f"{utc.microsecond // 1000:03d}Z"
    return given


def states(given: Union[None, str, Iterable[str]]) -> Optional[str]:
    if given is None or isinstance(given, str):
        return given
    return ",".join(given)


def stop(op: str, scope: Optional[str], tool: Optional[str], all: bool, reason: Optional[str],
         actor: Optional[str]) -> bytes:  # fmt: skip
    if (scope is not None) + (tool is not None) + all != 1:
        raise bad_arguments(f"{op} takes one of scope, tool and all=True")
    return request(op, scope=scope, tool=tool, all=all or None, reason=reason, actor=actor)


def outcome(value: Any, status: Optional[int]) -> Dict[str, Any]:
    given: Dict[str, Any] = {"value": value}
    if status is not None:
        given["status"] = status
    return given
