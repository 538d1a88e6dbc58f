"""The ledger in this process: libsemel's flat door, by ctypes.

The library is called with bytes and answers with bytes; no structure of C is mirrored here. Calls release
the GIL. Requests of event loops are handed in with a tag; one file descriptor becomes readable when answers
can be taken, so nobody needs a thread to wait.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import itertools
import json
import os
import select
import sys
import threading
import time
import weakref
from typing import Any, Callable, Dict, List, Optional

from . import _aio
from ._errors import SemelError, refusal, unavailable
from ._transport import Transport

__all__ = ["Flat", "library"]

_Taker = Callable[[str], None]

_library: Any = None
_loading = threading.Lock()


def library() -> Any:
    """libsemel: the one that ``SEMEL_LIBRARY`` names, else the one in this package, else the system's."""
    global _library
    if _library is None:
        with _loading:
            if _library is None:
                _library = _load()
    return _library


def _load() -> Any:
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "libsemel.so")
    named = os.environ.get("SEMEL_LIBRARY")
    path = named or (here if os.path.exists(here) else "libsemel.so.0")
    try:
        lib = ctypes.CDLL(path)
        lib.semel_flat_open  # noqa: B018
    except (OSError, AttributeError) as error:
        raise SemelError(
            f"libsemel cannot be loaded ({error}). Install the package's wheel, or name a library with "
            "SEMEL_LIBRARY. A ledger of a gateway (http://...) needs none."
        ) from None
    size, text, handle = ctypes.c_size_t, ctypes.c_char_p, ctypes.c_void_p
    number = ctypes.c_uint64
    _declare(lib, "semel_flat_open", handle, text, size, ctypes.POINTER(ctypes.c_void_p))
    _declare(lib, "semel_flat_close", None, handle)
    _declare(lib, "semel_flat_submit", ctypes.c_bool, handle, number, text, size)
    _declare(lib, "semel_flat_fd", ctypes.c_int, handle)
    _declare(
        lib, "semel_flat_take", ctypes.c_void_p, handle, ctypes.POINTER(number), ctypes.POINTER(size)
    )
    _declare(lib, "semel_flat_cancel", ctypes.c_bool, handle, number)
    _declare(lib, "semel_flat_free", None, ctypes.c_void_p)
    for name in ("semel_flat_ask", "semel_flat_recall"):
        # The length of the answer is not asked for: JSON has no NUL inside.
        _declare(lib, name, text, handle, text, size, ctypes.c_void_p)
    return lib


def _declare(lib: Any, name: str, result: Any, *given: Any) -> None:
    function = getattr(lib, name)
    function.restype = result
    function.argtypes = list(given)


class Flat(Transport):
    """A ledger that this process opens itself."""

    renews = True
    embedded = True

    def __init__(self, options: Dict[str, Any]) -> None:
        lib = self._lib = library()
        self.url = options.get("url")
        text = json.dumps(options).encode()
        problem = ctypes.c_void_p()
        handle = lib.semel_flat_open(text, len(text), ctypes.byref(problem))
        if not handle:
            if not problem.value:
                raise MemoryError("semel_flat_open")
            answer = ctypes.string_at(problem.value).decode()
            lib.semel_flat_free(problem)
            raise refusal(json.loads(answer))
        self._handle: Optional[int] = handle
        self._tags = itertools.count(1)
        self._waiting: Dict[int, _Taker] = {}
        self._loops: "weakref.WeakKeyDictionary[Any, int]" = weakref.WeakKeyDictionary()
        self._fd = -1
        self._lock = threading.Lock()
        self._closing = threading.Lock()
        self._ask = lib.semel_flat_ask
        self._recall = lib.semel_flat_recall
        _opened.add(self)

    # ---- one at a time

    # The path of every replay: one call into C, which gives bytes that are the thread's own. Whether a
    # thread is in one of these two is what close() looks for.
    def ask(self, request: bytes) -> str:
        answer = self._ask(self._handle or self._open(), request, len(request), None)
        if answer is None:
            raise MemoryError("semel_flat_ask")
        return str(answer, "utf-8")

    def recall(self, request: bytes) -> Optional[str]:
        answer = self._recall(self._handle or self._open(), request, len(request), None)
        return None if answer is None else str(answer, "utf-8")

    def ask_waiting(self, request: bytes) -> str:
        # Python runs its signal handlers in the main thread, and not while that is in C.
        if threading.current_thread() is not threading.main_thread():
            return self.ask(request)
        answers: List[str] = []
        tag = self._submit(request, answers.append)
        poller = select.poll()
        poller.register(self._descriptor(), select.POLLIN)
        try:
            while not answers:
                poller.poll(100)  # somebody else's loop may take our answer
                self._drain()
        except BaseException:
            self._give_up(tag, _nobody)
            raise
        return answers[0]

    # ---- many at once

    def _open(self) -> int:
        handle = self._handle
        if handle is None:
            raise unavailable("The ledger is closed.")
        return handle

    def _descriptor(self) -> int:
        """Our own number for what becomes readable: it stays ours when the library closes its own."""
        with self._lock:
            if self._fd < 0:
                fd = self._lib.semel_flat_fd(self._open())
                if fd < 0:
                    raise unavailable("The library cannot make a file descriptor.")
                self._fd = os.dup(fd)
            return self._fd

    def _submit(self, request: bytes, taker: _Taker) -> int:
        tag = next(self._tags)
        self._waiting[tag] = taker
        if not self._lib.semel_flat_submit(self._open(), tag, request, len(request)):
            del self._waiting[tag]
            raise MemoryError("semel_flat_submit")
        return tag

    def _give_up(self, tag: int, abandoned: _Taker) -> None:
        """Nobody waits for the answer any more. One that is there already goes to ``abandoned``."""
        if tag not in self._waiting:
            return
        self._waiting[tag] = abandoned
        if self._handle is not None:
            self._lib.semel_flat_cancel(self._handle, tag)

    def _drain(self) -> None:
        """Hands out the answers that are there; some of them, so that the loop goes on."""
        lib = self._lib
        tag = ctypes.c_uint64()
        n = ctypes.c_size_t()
        for _ in range(256):
            if self._handle is None:
                return
            answer = lib.semel_flat_take(self._handle, ctypes.byref(tag), ctypes.byref(n))
            if not answer:
                return
            try:
                text = ctypes.string_at(answer, n.value).decode()
            finally:
                lib.semel_flat_free(answer)
            taker = self._waiting.pop(tag.value, None)
            if taker is not None:
                taker(text)

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop not in self._loops:
            loop.add_reader(self._descriptor(), self._drain)
            self._loops[loop] = threading.get_ident()

    def _send(
        self, request: bytes, abandoned: Optional[_Taker] = None
    ) -> "tuple[asyncio.Future[str], int]":
        loop = asyncio.get_running_loop()
        self._listen(loop)
        future: "asyncio.Future[str]" = loop.create_future()
        here = threading.get_ident()

        def arrived(answer: str) -> None:
            if threading.get_ident() == here:
                if not future.done():
                    future.set_result(answer)
                elif abandoned is not None:  # cancelled, and the task has not run since
                    abandoned(answer)
                return
            try:  # another loop's reader took it
                loop.call_soon_threadsafe(arrived, answer)
            except RuntimeError:  # the loop is closed
                if abandoned is not None:
                    abandoned(answer)

        return future, self._submit(request, arrived)

    async def ask_async(self, request: bytes, abandoned: Optional[_Taker] = None) -> str:
        trio = _aio.in_trio()
        if trio is not None:
            return await self._ask_trio(trio, request, abandoned)
        future, tag = self._send(request, abandoned)
        try:
            return await future
        except asyncio.CancelledError:
            self._give_up(tag, abandoned or _nobody)
            if abandoned is not None and future.done() and not future.cancelled():
                abandoned(future.result())
            raise

    async def settle(self, request: bytes) -> str:
        trio = _aio.in_trio()
        if trio is not None:
            with trio.CancelScope(shield=True):
                return await self._ask_trio(trio, request, None)
        return await _aio.outlive(lambda: self._send(request)[0])

    async def pause(self, seconds: float) -> None:
        await _aio.pause(seconds)

    async def _ask_trio(self, trio: Any, request: bytes, abandoned: Optional[_Taker]) -> str:
        token = trio.lowlevel.current_trio_token()
        if token not in self._loops:
            self._loops[token] = threading.get_ident()
            trio.lowlevel.spawn_system_task(self._pump_trio, trio)
        answers: List[str] = []
        event = trio.Event()
        here = threading.get_ident()

        def arrived(answer: str) -> None:
            if threading.get_ident() == here:
                answers.append(answer)
                event.set()
            else:
                token.run_sync_soon(arrived, answer)

        tag = self._submit(request, arrived)
        try:
            await event.wait()
        except BaseException:
            self._give_up(tag, abandoned or _nobody)
            if abandoned is not None and answers:
                abandoned(answers[0])
            raise
        return answers[0]

    async def _pump_trio(self, trio: Any) -> None:
        fd = os.dup(self._descriptor())  # trio lets one task wait for a descriptor
        try:
            while self._handle is not None:
                await trio.lowlevel.wait_readable(fd)
                self._drain()
        finally:
            os.close(fd)

    # ---- the end, and forks

    def close(self) -> None:
        with self._closing:
            handle, self._handle = self._handle, None
            if handle is None:
                return
            self._unlisten()
            if self._left():
                self._lib.semel_flat_close(handle)
            waiting, self._waiting = dict(self._waiting), {}
            for taker in waiting.values():
                taker(_closed)

    def _left(self) -> bool:
        """Waits until no other thread is inside of the library with our handle. False: one stays there."""
        until = time.monotonic() + (_leave_seconds if not _ending else 1)
        while True:
            me = threading.get_ident()
            inside = any(
                frame.f_code in _inside and frame.f_locals.get("self") is self
                for thread, frame in sys._current_frames().items()
                if thread != me
            )
            if not inside:
                return True
            if time.monotonic() > until:
                return False
            time.sleep(0.002)

    def _unlisten(self) -> None:
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        for loop, thread in list(self._loops.items()):
            if not hasattr(loop, "remove_reader"):
                continue  # trio's: its task ends with its run
            try:
                if loop.is_closed():
                    continue
                if thread == threading.get_ident() or not loop.is_running():
                    loop.remove_reader(fd)
                else:
                    gone = threading.Event()

                    def remove(loop: Any = loop, gone: threading.Event = gone) -> None:
                        loop.remove_reader(fd)
                        gone.set()

                    loop.call_soon_threadsafe(remove)
                    gone.wait(1)
            except RuntimeError:
                pass  # it was closed meanwhile
        self._loops = weakref.WeakKeyDictionary()
        os.close(fd)

    def _forked(self) -> None:
        """In a child: its loops, its descriptor and those who wait are the parent's."""
        self._lock = threading.Lock()
        self._closing = threading.Lock()
        self._waiting = {}
        self._loops = weakref.WeakKeyDictionary()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


#: What calls into the library. A thread that is there has one of these as its innermost frame.
_inside = frozenset(
    function.__code__ for function in (Flat.ask, Flat.recall, Flat._submit, Flat._drain, Flat._give_up)
)

#: For how long close() waits for those who are inside: they may wait for somebody else's attempt.
_leave_seconds = 60.0
_ending = False


def _nobody(answer: str) -> None:
    pass


_closed = json.dumps(unavailable("The ledger was closed.").answer)

#: What a child of a fork has to know about, and what the end of the process closes.
_opened: "weakref.WeakSet[Flat]" = weakref.WeakSet()


def _forked() -> None:
    global _loading
    _loading = threading.Lock()
    for flat in list(_opened):
        flat._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


@atexit.register
def _close_all() -> None:
    global _ending
    _ending = True
    for flat in list(_opened):
        flat.close()
