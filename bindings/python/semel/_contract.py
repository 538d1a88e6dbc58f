"""The knobs of a tool as the fields of its contract.

Nothing is decided here: the fields and their meaning are in docs/contracts.md, and the core reads and
checks them. Names lose what Python cannot write (``class_``), durations may be timedeltas, pointers may be
names.
"""

from __future__ import annotations

import datetime
import json
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from ._errors import NotSupported

__all__ = ["Duration", "contract", "contracts"]

#: How long: a text such as "10m", a timedelta, or seconds.
Duration = Union[str, int, float, datetime.timedelta]

_durations = ("window", "result_window", "lease", "repeat_after", "delivered_within")

_fields = frozenset((
    "approval", "barrier", "breaker", "budget", "class", "compensate", "cost", "delivered_within",
    "description", "failures", "fill", "idempotency", "input", "key", "lease", "limit", "loop", "mode",
    "on_drift", "on_hit", "on_in_doubt", "on_repeat", "probe", "redact", "repeat_after", "resource",
    "result_window", "step", "tokens", "variants", "version", "window",
))  # fmt: skip

#: All that decorators of this process declare, by name.
_declared: Dict[str, Dict[str, Any]] = {}


def contract(
    tool: str,
    *,
    key: Any = None,
    ignore: Optional[Sequence[str]] = None,
    match: Optional[Sequence[str]] = None,
    **knobs: Any,
) -> Dict[str, Any]:
    """The contract of a tool. TypeError for a knob that does not exist."""
    fields: Dict[str, Any] = {}
    identity = _identity(key, ignore, match)
    if identity is not None:
        fields["key"] = identity
    for name, value in knobs.items():
        field = name.rstrip("_")
        if field not in _fields:
            raise TypeError(f"{tool}: {name!r} is not a knob of a tool")
        if value is None:
            continue
        if field in _durations:
            value = duration(value)
        elif field in ("approval", "loop", "breaker", "budget", "limit", "redact", "resource"):
            value = _written(field, value)
        fields[field] = value
    return fields


def _identity(key: Any, ignore: Optional[Sequence[str]], match: Optional[Sequence[str]]) -> Any:
    if callable(key):
        key = None  # the caller's own key, made at each call
    if isinstance(key, Mapping):
        return dict(key)
    found: Dict[str, Any] = {}
    if isinstance(key, str):
        if ignore is None and match is None:
            return key  # a strategy: step, explicit, unique, none
        found["strategy"] = key
    elif key is not None:
        found["fields"] = pointers(key)
    if ignore is not None:
        found["ignore"] = pointers(ignore)
    if match is not None:
        found["match"] = pointers(match)
    return found or None


def pointers(names: Union[str, Sequence[str]]) -> List[str]:
    """Pointers. One name is a list of one."""
    return [pointer(name) for name in ((names,) if isinstance(names, str) else names)]


def pointer(name: str) -> str:
    """A JSON pointer. A bare name is the argument of that name."""
    if not isinstance(name, str):
        raise TypeError(f"{name!r} is not the name of an argument")
    return name if name.startswith("/") else "/" + name.replace("~", "~0").replace("/", "~1")


def duration(value: Duration) -> str:
    """A duration as contracts write it."""
    if isinstance(value, str):
        return value
    seconds = value.total_seconds() if isinstance(value, datetime.timedelta) else value
    ms = round(seconds * 1000)
    return f"{ms // 1000}s" if ms % 1000 == 0 else f"{ms}ms"


def _written(field: str, value: Any) -> Any:
    """What is shorter in Python: True and False, and names for pointers."""
    if value is False:
        return "off"
    if value is True:
        return {}
    if field in ("redact", "resource") and not isinstance(value, Mapping):
        return pointers(value)
    if isinstance(value, Mapping):
        return {k: _member(k, v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_written(field, v) if isinstance(v, Mapping) else v for v in value]
    return value


def _member(name: str, value: Any) -> Any:
    if name in ("window", "cooldown", "expires") and not isinstance(value, str):
        return duration(value)
    return value


def remember(tool: str, fields: Dict[str, Any]) -> None:
    _declared[tool] = fields


def contracts() -> Dict[str, Any]:
    """The contracts of all tools that decorators of this process declare, for a contract file.

    A gateway knows contracts only from its file. This prints one that it can read::

        python -c 'import json, semel, my_tools; print(json.dumps(semel.contracts(), indent=2))'
    """
    return {"version": 1, "tools": {name: dict(fields) for name, fields in sorted(_declared.items())}}


def unlisted(tool: str, fields: Dict[str, Any], told: Mapping[str, Any], url: Optional[str]) -> None:
    """A gateway has contracts of its own: those of the decorator must be there already.

    What it lists is compared as far as it tells it. NotSupported if the tool is missing or differs.
    """
    for item in told.get("items", ()):
        if item.get("name") == tool:
            differs = _differences(fields, item)
            if not differs:
                return
            raise NotSupported(
                f"{tool} is declared differently by its decorator and by the gateway at {url}: "
                + "; ".join(differs)
                + ". Contracts of a gateway are in its contract file; write there what the decorator says, or "
                "leave these knobs out of the decorator."
            )
    text = json.dumps({"version": 1, "tools": {tool: fields}})
    raise NotSupported(
        f"{tool} has contract knobs in its decorator, and the gateway at {url} does not list the tool. "
        f"Contracts of a gateway are in its contract file. Add this to it: {text} "
        "(semel.contracts() prints all of them), or leave the knobs out of the decorator."
    )


def _differences(fields: Dict[str, Any], item: Mapping[str, Any]) -> List[str]:
    found = []
    for name, value in fields.items():
        if name not in item:
            continue
        there = item[name]
        if isinstance(value, dict) and isinstance(there, dict):
            same = all(there.get(k) == v for k, v in value.items() if k in there)
        elif isinstance(there, dict) and "strategy" in there:
            same = there["strategy"] == value
        else:
            same = there == value
        if not same:
            found.append(f"{name} is {json.dumps(value)} here and {json.dumps(there)} there")
    return found
