"""What differs between asyncio and trio, and how a coroutine outlives its cancellation."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Awaitable, Callable, TypeVar

__all__ = ["in_trio", "outlive", "pause"]

_T = TypeVar("_T")


def in_trio() -> Any:
    """The module trio if its loop runs in this thread, else None."""
    trio = sys.modules.get("trio")
    if trio is None:
        return None
    try:
        asyncio.get_running_loop()
        return None
    except RuntimeError:
        pass
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return None
    return trio


async def outlive(start: Callable[[], "asyncio.Future[_T]"]) -> _T:
    """Waits for a future even if we are cancelled, and is cancelled then.

    Whoever cancels us twice does not want to wait: the future goes on without us.
    """
    future = start()
    cancelled = None
    while True:
        try:
            value = await asyncio.shield(future)
            break
        except asyncio.CancelledError as error:
            if cancelled is not None or future.cancelled():
                raise
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return value


async def pause(seconds: float) -> None:
    """Sleeps. Somebody who is cancelled meanwhile is cancelled when it is over."""
    trio = in_trio()
    if trio is not None:
        with trio.CancelScope(shield=True):
            await trio.sleep(seconds)
        return
    await outlive(lambda: asyncio.ensure_future(asyncio.sleep(seconds)))


def done(awaitable: Awaitable[Any]) -> None:
    """Keeps what runs on its own from being collected, and its failure from being reported."""
    task = asyncio.ensure_future(awaitable)
    _going.add(task)
    task.add_done_callback(_gone)


_going: "set[asyncio.Future[Any]]" = set()


def _gone(task: "asyncio.Future[Any]") -> None:
    _going.discard(task)
    if not task.cancelled():
        task.exception()
