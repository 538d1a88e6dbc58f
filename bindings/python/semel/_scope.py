"""Where a call is made: the scope, the step, and the effect that runs.

These are context variables. Tasks of asyncio inherit them from the task that made them; threads do not.
"""

from __future__ import annotations

import contextvars
import json
from contextlib import ContextDecorator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Optional, Type, TypeVar, Union

from ._errors import NoEffect, SemelError

if TYPE_CHECKING:
    from ._values import Effect

__all__ = ["Place", "current", "leave", "place", "running", "scope", "step"]

_F = TypeVar("_F", bound=Callable[..., object])


class Place:
    """A scope and a step, with the JSON members that they are in a request."""

    __slots__ = ("scope", "step", "text")

    def __init__(self, scope: str, step: Optional[str]) -> None:
        self.scope = scope
        self.step = step
        self.text = '"scope":' + json.dumps(scope, ensure_ascii=False)
        if step is not None:
            self.text += ',"step":' + json.dumps(step, ensure_ascii=False)


#: Where the calls of this context are made; None: in no scope.
place: "contextvars.ContextVar[Optional[Place]]" = contextvars.ContextVar("semel.place", default=None)

#: The effect that this context executes; None: no tool runs.
running: "contextvars.ContextVar[Optional[Effect]]" = contextvars.ContextVar("semel.effect", default=None)


def leave(token: "contextvars.Token[Optional[Effect]]") -> None:
    """The effect is not executed here any more. What was entered in one context may end in another, such as
    a coroutine that is collected; then there is nothing to leave."""
    try:
        running.reset(token)
    except ValueError:
        pass


# The places around it, the innermost first: a pair of a place and those around that. What is entered does
# not know where it was entered, since tasks may share it.
_outer: "contextvars.ContextVar[Any]" = contextvars.ContextVar("semel.outer", default=None)


class _Within(ContextDecorator):
    """Enters a place for the time of a block or of a function, which may be a coroutine function."""

    def _place(self) -> Place:
        raise NotImplementedError

    def __enter__(self: "_W") -> "_W":
        here = place.get()
        place.set(self._place())
        _outer.set((here, _outer.get()))
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        outer = _outer.get()
        if outer is not None:  # always, unless a generator was closed in another context
            place.set(outer[0])
            _outer.set(outer[1])

    async def __aenter__(self: "_W") -> "_W":
        return self.__enter__()

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.__exit__(kind, error, trace)

    def __call__(self, function: _F) -> _F:
        import functools
        import inspect

        if not inspect.iscoroutinefunction(function):
            return super().__call__(function)

        @functools.wraps(function)
        async def within(*args: object, **kwargs: object) -> object:
            with self:
                return await function(*args, **kwargs)

        return within  # type: ignore[return-value]


_W = TypeVar("_W", bound=_Within)


class scope(_Within):
    """Names the run that calls belong to: within one scope, equal calls are the same action.

    ::

        with semel.scope("acme/support/order-123"):
            charge(amount=1000)         # runs
            charge(amount=1000)         # answered from the record

    A scope is read as ``tenant/agent/run``. Take what outlives a retry: the order's number, the thread
    or conversation, the webhook's id. Do not take what is new each time, such as a tool call's id. An
    inner scope replaces the outer one. It works as a decorator too, also of coroutine functions.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"a scope is a str, not {type(name).__name__}")
        self.name = name
        self._where = Place(name, None)

    def _place(self) -> Place:
        return self._where


class step(_Within):
    """Tells calls apart that are equal and meant to be different, by their place in the workflow.

    ::

        with semel.scope("order-123"):
            with semel.step(1):
                remind("ann")
            with semel.step(2):
                remind("ann")           # another action: it runs
    """

    def __init__(self, name: Union[int, str]) -> None:
        if isinstance(name, bool) or not isinstance(name, (int, str)):
            raise TypeError(f"a step is an int or a str, not {type(name).__name__}")
        self.name = str(name)

    def _place(self) -> Place:
        outer = place.get()
        if outer is None:
            raise SemelError("semel.step() needs a scope around it: `with semel.scope(...):`")
        return Place(outer.scope, self.name)


def current() -> "Effect":
    """The effect that the running tool executes. Outside of a tool: :class:`semel.NoEffect`.

    ::

        @semel.once
        def charge(order: str, amount: int) -> dict:
            return stripe.PaymentIntent.create(amount=amount, idempotency_key=semel.current().key)
    """
    effect = running.get()
    if effect is None:
        raise NoEffect("semel.current() was called while no tool runs")
    return effect
