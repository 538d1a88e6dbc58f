"""Values of Python as JSON texts, and back.

The encoder of the standard library's C module is made once and called directly: that is what
``json.dumps`` does for each call anew.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import enum
import json
import json.decoder
import json.encoder
import os
import sys
import uuid
from typing import Any, Callable, Optional, Tuple

__all__ = ["dumps", "plain", "scan", "dumps_value", "loads", "as_text", "bad_text"]


def plain(value: Any) -> Any:
    """What stands for a value that JSON has no word for. TypeError if nothing obvious does."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    dump = getattr(value, "model_dump", None)  # pydantic 2
    if dump is not None and not isinstance(value, type):
        return dump(mode="json")
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (uuid.UUID, decimal.Decimal)):
        return str(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        item: Any = value
        return item.item()
    raise TypeError(f"{type(value).__name__} is not JSON")


def _maker() -> Callable[[Any], str]:
    make = getattr(json.encoder, "c_make_encoder", None)
    text = getattr(json.encoder, "encode_basestring", None)
    slow = json.JSONEncoder(
        ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=plain, check_circular=False
    )
    if make is None or text is None:
        return slow.encode
    try:
        encode = make(None, plain, text, None, ":", ",", False, False, False)
        if "".join(encode({"a": [1, None, "\u00e4\n"]}, 0)) != '{"a":[1,null,"\u00e4\\n"]}':
            return slow.encode
    except Exception:  # another Python made it otherwise
        return slow.encode
    join = "".join

    def dumps(value: Any) -> str:
        return join(encode(value, 0))

    return dumps


#: The JSON text of a value. TypeError, ValueError or RecursionError if there is none.
dumps: Callable[[Any], str] = _maker()

_decoder = json.JSONDecoder()

#: scan(text, at): the value that begins there, and where it ends.
scan: Callable[[str, int], Tuple[Any, int]] = getattr(_decoder, "scan_once", _decoder.raw_decode)

loads = json.loads


def dumps_value(value: Any) -> Tuple[str, Optional[str]]:
    """The JSON text of a result, and the content type if it is not the value itself.

    What a tool returned has happened, so this never fails: bytes become base64, and what is not JSON
    becomes the text that ``repr`` gives.
    """
    kind = None
    try:
        text = dumps(value)
        text.encode()  # lone surrogates
        return text, None
    except (TypeError, ValueError, RecursionError, AttributeError):
        pass
    except Exception:  # a property or a model of the value's own
        pass
    if isinstance(value, (bytes, bytearray, memoryview)):
        kind = BYTES
        return '"' + base64.b64encode(value).decode() + '"', kind
    return dumps(bad_text(as_text(value))), TEXT


def as_text(value: Any) -> str:
    """A text about a value that is not JSON."""
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__}: no text, {type(error).__name__}>"
    return text if len(text) <= _text_max else text[:_text_max] + "..."


def bad_text(text: str) -> str:
    """A text that UTF-8 can hold: lone surrogates become escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


_text_max = 64 * 1024

BYTES = "application/octet-stream; encoding=base64"
TEXT = "text/x-python-repr"
