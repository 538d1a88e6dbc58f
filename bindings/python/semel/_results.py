"""Results: what a tool returned, as it is recorded, and as it comes back.

A result is recorded as JSON. A replay gets it in the type that the function's annotation names: pydantic
models, dataclasses, and what they are made of. Without an annotation it is plain JSON.
"""

from __future__ import annotations

import base64
import collections.abc
import dataclasses
import datetime
import decimal
import enum
import pathlib
import sys
import typing
import uuid
from typing import Any, Callable, Dict, Optional, Tuple, Union

from ._json import BYTES, TEXT

__all__ = ["Reader", "Text", "decode", "reader"]

Reader = Callable[[Any], Any]


class Text(str):
    """A result that is not JSON, as the text that was kept of it.

    The tool ran and its effect is recorded; only what it returned could not be kept as it was.
    """


def decode(value: Any, headers: Optional[Dict[str, Any]], read: Optional[Reader]) -> Any:
    """A recorded value as what the function returned."""
    if headers:
        kind = headers.get("Content-Type")
        if kind == TEXT and isinstance(value, str):
            return Text(value)
        if kind == BYTES and isinstance(value, str):
            return base64.b64decode(value)
    return value if read is None else read(value)


def reader(annotation: Any) -> Optional[Reader]:
    """What makes a recorded value the annotated type again. None: plain JSON is already that."""
    if annotation is None or isinstance(annotation, (str, typing.TypeVar)):
        return None
    if annotation in _plain:
        return None
    simple = _simple.get(annotation)
    if simple is not None:
        return simple
    origin = typing.get_origin(annotation)
    if origin is not None:
        return _generic(origin, typing.get_args(annotation))
    if not isinstance(annotation, type):
        return None
    if hasattr(annotation, "model_validate"):  # pydantic 2
        validate: Reader = annotation.model_validate
        return validate
    if dataclasses.is_dataclass(annotation):
        return _dataclass(annotation)
    if issubclass(annotation, enum.Enum):
        return annotation
    if issubclass(annotation, tuple) and hasattr(annotation, "_fields"):  # a named tuple
        make: Any = annotation
        return lambda value: make(*value)
    if issubclass(annotation, pathlib.PurePath):
        return annotation
    return None


_plain = (Any, object, str, int, float, bool, list, dict, type(None))
_simple: Dict[Any, Reader] = {
    datetime.datetime: datetime.datetime.fromisoformat,
    datetime.date: datetime.date.fromisoformat,
    datetime.time: datetime.time.fromisoformat,
    decimal.Decimal: decimal.Decimal,
    uuid.UUID: uuid.UUID,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
}


def _generic(origin: Any, given: Tuple[Any, ...]) -> Optional[Reader]:
    if origin is Union or origin is getattr(sys.modules.get("types"), "UnionType", None):
        return _union([a for a in given if a is not type(None)])
    if origin is typing.Annotated if hasattr(typing, "Annotated") else False:
        return reader(given[0])
    if hasattr(origin, "model_validate"):
        return None
    if origin is tuple:
        if len(given) == 2 and given[1] is Ellipsis:
            return _collected(tuple, reader(given[0]))
        items = [reader(a) for a in given]
        return lambda value: tuple(v if r is None else r(v) for r, v in zip(items, value))
    if isinstance(origin, type) and issubclass(origin, collections.abc.Mapping):
        return _mapped(reader(given[1]) if len(given) == 2 else None)
    if isinstance(origin, type) and issubclass(origin, (collections.abc.Sequence, collections.abc.Set)):
        item = reader(given[0]) if given else None
        if origin in (set, frozenset):
            return _collected(origin, item)
        return None if item is None else _collected(list, item)
    return None


def _collected(make: Any, item: Optional[Reader]) -> Reader:
    if item is None:
        return lambda value: make(value)
    each = item
    return lambda value: make(map(each, value))


def _mapped(item: Optional[Reader]) -> Optional[Reader]:
    if item is None:
        return None
    each = item
    return lambda value: {k: each(v) for k, v in value.items()}


def _union(choices: "list[Any]") -> Optional[Reader]:
    readers = [reader(c) for c in choices]
    if all(r is None for r in readers):
        return None

    def read(value: Any) -> Any:
        if value is None:
            return None
        for one in readers:
            if one is None:
                return value
            try:
                return one(value)
            except Exception:
                continue
        return value

    return read


def _dataclass(annotation: Any) -> Reader:
    parts: Optional[Dict[str, Optional[Reader]]] = None

    def read(value: Any) -> Any:
        nonlocal parts
        if parts is None:  # at its first use: a class may name itself
            hints = typing.get_type_hints(annotation)
            parts = {f.name: reader(hints.get(f.name)) for f in dataclasses.fields(annotation) if f.init}
        if not isinstance(value, dict):
            return value
        given = {}
        for name, item in parts.items():
            if name in value:
                given[name] = value[name] if item is None else item(value[name])
        return annotation(**given)

    return read


def returns(function: Any) -> Optional[Reader]:
    """The reader for what a function's annotation says it returns."""
    try:
        return reader(typing.get_type_hints(function, include_extras=False).get("return"))
    except Exception:  # an annotation that cannot be evaluated here
        return None
