"""The ledger behind a gateway: the same requests over HTTP.

Threads share a few kept connections; event loops have their own, read and written by asyncio. A request
whose connection died before an answer began is sent once more: a begin that arrived twice finds itself in
flight, and a commit that arrives twice is harmless. So nothing runs twice, whatever is lost.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import select
import socket
import ssl
import threading
import urllib.parse
import weakref
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from . import _aio
from ._errors import NotSupported, unavailable
from ._transport import Transport

__all__ = ["Http"]

_Taker = Callable[[str], None]

#: How each operation is asked over HTTP: the method, the path, and the member that stands in the path.
_routes: Dict[str, Tuple[str, str, Optional[str]]] = {
    "begin": ("POST", "/v1/begin", None),
    "commit": ("POST", "/v1/commit", None),
    "renew": ("POST", "/v1/renew", None),
    "release": ("POST", "/v1/release", None),
    "effects": ("GET", "/v1/effects", None),
    "effect": ("GET", "/v1/effects/{}", "effect"),
    "events": ("GET", "/v1/effects/{}/events", "effect"),
    "approve": ("POST", "/v1/effects/{}/approve", "effect"),
    "deny": ("POST", "/v1/effects/{}/deny", "effect"),
    "cancel": ("POST", "/v1/effects/{}/cancel", "effect"),
    "resolve": ("POST", "/v1/effects/{}/resolve", "effect"),
    "forget": ("POST", "/v1/effects/{}/forget", "effect"),
    "approvals": ("GET", "/v1/approvals", None),
    "tools": ("GET", "/v1/tools", None),
    "scopes": ("GET", "/v1/scopes", None),
    "scope": ("GET", "/v1/scopes/{}", "scope"),
    "spend": ("GET", "/v1/spend", None),
    "stops": ("GET", "/v1/stops", None),
    "stop": ("POST", "/v1/stop", None),
    "resume": ("POST", "/v1/resume", None),
    "reset": ("POST", "/v1/scopes/{}/reset", "scope"),
    "undo_plan": ("GET", "/v1/scopes/{}/undo", "scope"),
}

#: Requests whose JSON is the body as it stands, but for the operation's name.
_direct = tuple((b'{"op":"%b",' % op.encode(), op) for op in ("begin", "commit", "renew", "release"))

#: Seconds that the gateway has for an answer, beyond those that a request asks it to wait.
_patience = 60.0

_answer_max = 64 * 1024 * 1024


class _Request(NamedTuple):
    method: str
    path: str
    body: Optional[bytes]
    seconds: float


class _Broken(Exception):
    """The connection ended. ``answered``: in the middle of an answer."""

    def __init__(self, why: BaseException, answered: bool) -> None:
        super().__init__(str(why))
        self.why = why
        self.answered = answered


class Http(Transport):
    """A ledger that a gateway keeps (``semel serve``)."""

    renews = False
    embedded = False

    def __init__(self, url: str, token: Optional[str], tls: Optional[ssl.SSLContext] = None) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not the URL of a gateway")
        if parts.username or parts.password:
            raise ValueError("a token belongs in token= or SEMEL_TOKEN, not in the URL")
        self.url = url
        self._host = parts.hostname
        self._tls = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        self._base = parts.path.rstrip("/")
        host = f"[{self._host}]" if ":" in self._host else self._host
        self._head = (
            f"Host: {host}:{self._port}\r\nAccept: application/json, application/problem+json\r\n"
            "User-Agent: semel-python\r\n"
        )
        self._headers = {"Accept": "application/json, application/problem+json", "User-Agent": "semel-python"}
        if token:
            if any(c in token for c in "\r\n"):
                raise ValueError("a token has no line ends")
            self._head += f"Authorization: Bearer {token}\r\n"
            self._headers["Authorization"] = f"Bearer {token}"
        self._lock = threading.Lock()
        self._idle: List[http.client.HTTPConnection] = []
        self._loops: "weakref.WeakKeyDictionary[Any, List[_Stream]]" = weakref.WeakKeyDictionary()
        self._pid = os.getpid()
        self._closed = False

    # ---- requests

    def _request(self, request: bytes) -> _Request:
        if self._closed:
            raise unavailable("The ledger is closed.")
        for head, op in _direct:
            if request.startswith(head):
                seconds = _patience
                if op == "begin":
                    at = request.find(b'"wait_ms":')  # ours: it stands before what callers give
                    if at >= 0:
                        seconds += int(request[at + 10 :].split(b",", 1)[0].rstrip(b"}")) / 1000
                return _Request("POST", self._base + _routes[op][1], b"{" + request[len(head) :], seconds)
        members = json.loads(request)
        op = members.pop("op")
        if op == "events" and "effect" not in members:
            raise NotSupported("A gateway lists the events of one effect; its stream has all: GET /v1/stream.")
        if op not in _routes:
            raise NotSupported(_not_here(op))
        method, path, named = _routes[op]
        if named is not None:
            path = path.format(urllib.parse.quote(str(members.pop(named)), safe=""))
        if members.pop("actor", None) is not None:
            raise NotSupported("A gateway knows who acts by the token; actor= is for a ledger of this process.")
        if method == "GET":
            query = {k: v for k, v in members.items() if v is not None}
            if query:
                path += "?" + urllib.parse.urlencode(query)
            return _Request(method, self._base + path, None, _patience)
        return _Request(method, self._base + path, json.dumps(members).encode(), _patience)

    # ---- threads

    def ask(self, request: bytes) -> str:
        asked = self._request(request)
        for last in (False, True):
            connection, used = self._connection(fresh=last)
            try:
                return self._exchange(connection, asked)
            except _Broken as error:
                connection.close()
                if last or not used or error.answered:
                    raise self._lost(error.why) from None
            except BaseException:
                connection.close()
                raise
        raise AssertionError

    def _exchange(self, connection: http.client.HTTPConnection, asked: _Request) -> str:
        headers = self._headers
        if asked.body is not None:
            headers = dict(headers, **{"Content-Type": "application/json"})
        answered = False
        try:
            if connection.sock is None:
                connection.timeout = 10
                connection.connect()
            wire: Any = connection.sock
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wire.settimeout(asked.seconds)
            connection.request(asked.method, asked.path, asked.body, headers)
            response = connection.getresponse()
            answered = True
            body = response.read(_answer_max)
            if response.length:  # read(n) does not notice that it broke off
                raise http.client.IncompleteRead(body, response.length)
        except (OSError, http.client.HTTPException) as error:
            raise _Broken(error, answered or isinstance(error, (TimeoutError, socket.timeout))) from None
        keep = not response.will_close
        answer = _answer(response.status, body)
        if keep:
            with self._lock:
                if not self._closed and len(self._idle) < 64 and self._pid == os.getpid():
                    self._idle.append(connection)
                    return answer
        connection.close()
        return answer

    def _connection(self, fresh: bool) -> Tuple[http.client.HTTPConnection, bool]:
        """A connection, and whether it was used before."""
        with self._lock:
            if self._pid != os.getpid():  # the sockets are the parent's too
                self._idle = []
                self._pid = os.getpid()
            while self._idle and not fresh:
                connection = self._idle.pop()
                if _usable(connection):
                    return connection, True
                connection.close()
        if self._tls is not None:
            return http.client.HTTPSConnection(self._host, self._port, context=self._tls), False
        return http.client.HTTPConnection(self._host, self._port), False

    def _lost(self, error: BaseException) -> Exception:
        return unavailable(f"The gateway at {self.url} did not answer ({error or type(error).__name__}).")

    # ---- event loops

    async def ask_async(self, request: bytes, abandoned: Optional[_Taker] = None) -> str:
        trio = _aio.in_trio()
        if trio is not None:
            answer: str = await trio.to_thread.run_sync(self.ask, request)
            return answer
        asked = self._request(request)
        if abandoned is None:
            return await self._ask_loop(asked)
        # It goes on if we are cancelled: the gateway may have let us begin, and must learn that we left.
        task = asyncio.ensure_future(self._ask_loop(asked))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            _aio.done(self._hand_over(task, abandoned))
            raise

    async def _hand_over(self, task: "asyncio.Future[str]", abandoned: _Taker) -> None:
        answer = await task
        if '"claim"' in answer:
            abandoned(answer)

    async def settle(self, request: bytes) -> str:
        trio = _aio.in_trio()
        if trio is not None:
            with trio.CancelScope(shield=True):
                answer: str = await trio.to_thread.run_sync(self.ask, request)
                return answer
        asked = self._request(request)
        return await _aio.outlive(lambda: asyncio.ensure_future(self._ask_loop(asked)))

    async def pause(self, seconds: float) -> None:
        await _aio.pause(seconds)

    async def _ask_loop(self, asked: _Request) -> str:
        loop = asyncio.get_running_loop()
        streams = self._loops.get(loop)
        if streams is None:
            streams = self._loops[loop] = []
        for last in (False, True):
            stream = None
            while streams and not last and stream is None:
                stream = streams.pop()
                if stream.reader.at_eof() or stream.writer.is_closing():
                    stream.writer.close()
                    stream = None
            used = stream is not None
            try:
                if stream is None:
                    stream = await self._connect()
                status, body, keep = await asyncio.wait_for(stream.exchange(self._bytes(asked)), asked.seconds)
            except _Broken as error:
                if stream is not None:
                    stream.writer.close()
                if last or not used or error.answered:
                    raise self._lost(error.why) from None
                continue
            except (OSError, asyncio.TimeoutError) as error:
                if stream is not None:
                    stream.writer.close()
                raise self._lost(error) from None
            except BaseException:
                if stream is not None:
                    stream.writer.close()
                raise
            if keep and not self._closed and len(streams) < 64:
                streams.append(stream)
            else:
                stream.writer.close()
            return _answer(status, body)
        raise AssertionError

    async def _connect(self) -> "_Stream":
        reader, writer = await asyncio.wait_for(
            asyncio.open_connection(self._host, self._port, ssl=self._tls, limit=256 * 1024), 10
        )
        return _Stream(reader, writer)

    def _bytes(self, asked: _Request) -> bytes:
        head = f"{asked.method} {asked.path} HTTP/1.1\r\n{self._head}"
        if asked.body is None:
            return (head + "\r\n").encode()
        head += f"Content-Type: application/json\r\nContent-Length: {len(asked.body)}\r\n\r\n"
        return head.encode() + asked.body

    def close(self) -> None:
        self._closed = True
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        for loop, streams in list(self._loops.items()):
            for stream in streams:
                try:
                    loop.call_soon_threadsafe(stream.writer.close)
                except RuntimeError:
                    pass  # the loop is closed, and its connections with it
        self._loops = weakref.WeakKeyDictionary()


class _Stream:
    """One connection of an event loop: HTTP/1.1, one exchange after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def exchange(self, request: bytes) -> Tuple[int, bytes, bool]:
        """The status, the body, and whether the connection can be used again."""
        answered = False
        try:
            self.writer.write(request)
            await self.writer.drain()
            line = await self.reader.readline()
            if not line:
                raise ConnectionResetError("the connection was closed")
            answered = True
            while True:
                status = int(line.split(None, 2)[1])
                headers = await self._headers()
                if status >= 200:
                    break
                line = await self.reader.readline()
            return status, await self._body(headers), headers.get("connection", "").lower() != "close"
        except (OSError, EOFError, ValueError, IndexError) as error:
            raise _Broken(error, answered) from None

    async def _headers(self) -> Dict[str, str]:
        headers: Dict[str, str] = {}
        while True:
            line = await self.reader.readline()
            if not line:
                raise EOFError("the answer broke off")
            if line in (b"\r\n", b"\n"):
                return headers
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()

    async def _body(self, headers: Dict[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            parts: List[bytes] = []
            while True:
                size = int((await self.reader.readline()).split(b";")[0], 16)
                if size == 0:
                    await self._headers()
                    return b"".join(parts)
                if size > _answer_max:
                    raise ValueError("an answer that is too large")
                parts.append(await self.reader.readexactly(size))
                await self.reader.readline()
        size = int(headers.get("content-length", "0"))
        if size > _answer_max:
            raise ValueError("an answer that is too large")
        return await self.reader.readexactly(size)


def _usable(connection: http.client.HTTPConnection) -> bool:
    """Whether the other end has neither closed it nor sent what nobody asked for."""
    if connection.sock is None:
        return False
    if not hasattr(select, "poll"):
        return True  # a dead one is noticed when it is used, and another one is made
    try:
        poller = select.poll()
        poller.register(connection.sock, select.POLLIN)
        return not poller.poll(0)
    except (OSError, ValueError):
        return False


def _answer(status: int, body: bytes) -> str:
    """The answer's JSON. What is none comes from something before the gateway."""
    text = body.decode("utf-8", "replace")
    if text.startswith(("{", "[")) and (status < 400 or '"code"' in text):
        return text
    if status == 204 or (status == 200 and not text):
        return "{}"
    return json.dumps(
        unavailable(f"What answered is not a gateway of Semel: status {status}, {text[:100]!r}.").answer
    )


def _not_here(op: str) -> str:
    if op == "declare":
        return "Contracts belong to the gateway: list the tool in its contract file."
    if op in ("export", "import"):
        return (
            "A gateway does not export or import. Use `semel export` and `semel import` on its machine, or "
            "open the ledger itself (sqlite:, postgres://, redis://)."
        )
    return f"A gateway does not have the operation {op!r}. Open the ledger itself (sqlite:, postgres://, redis://)."
