"""One keyword: functions whose calls happen once."""

from __future__ import annotations

import functools
import inspect
from types import TracebackType
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Type, TypeVar, Union, overload

from . import _contract, _results
from ._binding import binder, picker
from ._contract import Duration
from ._engine import REPLAY, SUCCESS, SUCCESS_LENGTH, Terms
from ._errors import NoScope, SemelError, bad_arguments
from ._json import dumps, scan
from ._judge import Judge, Types
from ._ledger import AsyncLedger, Ledger, call_text, default, not_json
from ._scope import Place, leave, place, running
from ._values import Effect

__all__ = ["effect", "once", "tool"]

F = TypeVar("F", bound=Callable[..., Any])
AnyLedger = Union[Ledger, AsyncLedger]
Key = Union[str, Sequence[str], Mapping[str, Any], Callable[..., str], None]


@overload
def once(function: F) -> F: ...
@overload
def once(
    function: None = None,
    *,
    name: Optional[str] = ...,
    ledger: Optional[AnyLedger] = ...,
    scope: Union[str, Callable[..., str], None] = ...,
    wait: Optional[float] = ...,
    exclude: Sequence[str] = ...,
    not_applied: Optional[Types] = ...,
    unknown: Optional[Types] = ...,
    applied: Optional[Types] = ...,
    returns: Any = ...,
    class_: Optional[str] = ...,
    key: Key = ...,
    ignore: Optional[Sequence[str]] = ...,
    match: Optional[Sequence[str]] = ...,
    window: Optional[Duration] = ...,
    result_window: Optional[Duration] = ...,
    lease: Optional[Duration] = ...,
    on_hit: Optional[str] = ...,
    failures: Optional[str] = ...,
    on_repeat: Optional[str] = ...,
    on_drift: Optional[str] = ...,
    approval: Union[None, bool, str, Mapping[str, Any]] = ...,
    step: Optional[str] = ...,
    loop: Union[None, bool, str, Mapping[str, Any]] = ...,
    budget: Union[None, Mapping[str, Any], Sequence[Mapping[str, Any]]] = ...,
    limit: Union[None, Mapping[str, Any], Sequence[Mapping[str, Any]]] = ...,
    breaker: Union[None, bool, str, Mapping[str, Any]] = ...,
    cost: Union[None, str, float] = ...,
    tokens: Optional[int] = ...,
    compensate: Optional[Mapping[str, Any]] = ...,
    **more: Any,
) -> Callable[[F], F]: ...
def once(
    function: Optional[Callable[..., Any]] = None,
    *,
    name: Optional[str] = None,
    ledger: Optional[AnyLedger] = None,
    scope: Union[str, Callable[..., str], None] = None,
    wait: Optional[float] = None,
    exclude: Sequence[str] = (),
    not_applied: Optional[Types] = None,
    unknown: Optional[Types] = None,
    applied: Optional[Types] = None,
    returns: Any = None,
    key: Key = None,
    ignore: Optional[Sequence[str]] = None,
    match: Optional[Sequence[str]] = None,
    **knobs: Any,
) -> Any:
    """Makes the calls of a function happen once within a scope. Everybody who asks again gets the
    recorded result.

    ::

        @semel.once
        def charge(order: str, amount: int, currency: str = "usd") -> dict:
            return stripe.PaymentIntent.create(..., idempotency_key=semel.current().key)

        with semel.scope("order-123"):
            charge("A-17", 1000)
            charge(amount=1000, order="A-17", currency="usd")   # the same call: the recorded result

    The arguments are bound to the signature, so all spellings of a call are one. Coroutine functions stay
    coroutine functions.

    Knobs of the decorator itself:

    ===============  ==================================================================================
    ``name``         the tool's name; else the function's
    ``ledger``       which ledger; else that of :func:`semel.use`, else ``semel.open()``
    ``scope``        the scope, or a function of the arguments that gives it; else ``semel.scope``
    ``wait``         for how many seconds to wait for somebody else's attempt or an approval; else 30
    ``exclude``      parameters that say nothing about what the call does: clients, loggers, ``self``.
                     Contexts of known frameworks are excluded already
    ``not_applied``  types of exceptions after which surely nothing was done
    ``unknown``      types of exceptions after which nobody knows: the effect is in doubt
    ``applied``      types of exceptions after which it was done nevertheless
    ``returns``      the type of the result, if the annotation does not say it
    ``key``          what identifies a call: names of arguments; a function of the arguments that gives a
                     key of your own; or a strategy, such as ``"step"``
    ``ignore``       all arguments but these
    ``match``        not part of the key, but a retry must agree in them
    ===============  ==================================================================================

    All others are fields of the tool's contract as docs/contracts.md describes them: ``class_`` (``read``,
    ``write_idempotent``, ``write``, ``irreversible``), ``window``, ``result_window``, ``lease``,
    ``on_hit``, ``failures``, ``on_repeat``, ``on_drift``, ``approval``, ``step``, ``loop``, ``budget``,
    ``limit``, ``breaker``, ``cost``, ``tokens``, ``compensate``, ``resource``, ``redact``, ``input``,
    ``barrier``, ``mode``, ``variants``... A decorator without any of them takes what the ledger's
    contract file says of the tool.
    """

    def decorate(function: F) -> F:
        if isinstance(function, (staticmethod, classmethod)):
            raise TypeError("write @staticmethod or @classmethod above the decorator of Semel")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"{getattr(function, '__qualname__', function)!r} is a generator: what it yields cannot be "
                "recorded. Return a list."
            )
        tool_name = name or getattr(function, "__name__", None)
        if not tool_name or tool_name == "<lambda>":
            raise TypeError("a lambda or a partial needs name=")
        fields = _contract.contract(tool_name, key=key, ignore=ignore, match=match, **knobs)
        _contract.remember(tool_name, fields)
        if isinstance(returns, type) or returns is not None:
            read = _results.reader(returns)
        else:
            read = _results.returns(function)
        judge = Judge(not_applied, unknown, applied)
        made = _Made(function, tool_name, ledger, scope, wait, exclude, key, judge, read, fields)
        kind = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004
        )
        wrapper = made.asynchronous() if kind else made.synchronous()
        functools.update_wrapper(wrapper, function)
        wrapper.__semel__ = made
        return wrapper  # type: ignore[no-any-return]

    return decorate if function is None else decorate(function)


@overload
def tool(function: F) -> F: ...
@overload
def tool(function: None = None, *, idempotent: bool = ..., **knobs: Any) -> Callable[[F], F]: ...
def tool(function: Optional[Callable[..., Any]] = None, *, idempotent: bool = False, **knobs: Any) -> Any:
    """``@semel.tool(idempotent=True)`` is :func:`once`. Without it a tool runs every time it is called;
    guards such as ``budget`` do not apply, and nothing of it is replayed (``key: none``).

    ::

        @semel.tool(idempotent=True)
        def transfer(from_acct: str, to_acct: str, amount: float) -> dict: ...
    """
    if not idempotent:
        knobs.setdefault("key", "none")
    return once(**knobs) if function is None else once(**knobs)(function)


class _Made:
    """A decorated function, before it is called."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        ledger: Optional[AnyLedger],
        scope: Union[str, Callable[..., str], None],
        wait: Optional[float],
        exclude: Sequence[str],
        key: Key,
        judge: Judge,
        read: Optional[_results.Reader],
        fields: Dict[str, Any],
    ) -> None:
        self.function = function
        self.name = name
        self.ledger = ledger.sync if isinstance(ledger, AsyncLedger) else ledger
        self.bind = binder(function, (exclude,) if isinstance(exclude, str) else exclude)
        self.key = picker(key) if callable(key) else None
        self.place = Place(scope, None) if isinstance(scope, str) else None
        self.scope = picker(scope) if callable(scope) else None
        self.fields = fields
        self._make = functools.partial(Terms, name, judge=judge, read=read, contract=fields)
        self._wait = wait
        # Callers of different ledgers may wait for different times.
        self._terms: Dict[float, Terms] = {}

    def terms(self, ledger: Ledger) -> Terms:
        wait = ledger.wait if self._wait is None else self._wait
        terms = self._terms.get(wait)
        if terms is None:
            terms = self._terms[wait] = self._make(wait)
        return terms

    def where(self, given: Dict[str, Any]) -> Optional[Place]:
        """The place of a call."""
        here = place.get()
        if self.place is not None:
            step = here.step if here is not None and here.scope == self.place.scope else None
            return self.place if step is None else Place(self.place.scope, step)
        if self.scope is not None:
            scope = self.scope(given)
            if not isinstance(scope, str):
                raise NoScope(self.name)
            step = here.step if here is not None and here.scope == scope else None
            return Place(scope, step)
        return here

    def key_text(self, given: Dict[str, Any]) -> str:
        if self.key is None:
            return "}"
        key = self.key(given)
        if not isinstance(key, str):
            raise bad_arguments(f"{self.name}: key= gave {type(key).__name__}, and a key is a str")
        return ',"key":' + dumps(key) + "}"

    def synchronous(self) -> Any:
        function, bind, name = self.function, self.bind, self.name
        here = place.get
        fixed = self.ledger
        plain = self.place is None and self.scope is None
        key_text = None if self.key is None else self.key_text
        # The ledger's core and the place of the last call, with what every request there begins with. One
        # object, so that threads see all of it or nothing. A forked child has another core.
        last: Tuple[Any, Any, Any, str] = (None, None, None, "")

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            nonlocal last
            given = bind(args, kwargs)
            ledger = fixed or default()
            where = here() if plain else self.where(given)
            if where is None:
                raise NoScope(name)
            core = ledger.core
            known, terms, there, start = last
            if where is not there or core is not known:
                terms = self.terms(ledger)
                if terms not in ledger._declared:
                    ledger._ready(terms)
                start = f'{terms.now}{where.text},"args":'
                last = (core, terms, where, start)
            try:
                rest = dumps(given) + ("}" if key_text is None else key_text(given))
                request = (start + rest).encode()
            except (TypeError, ValueError, RecursionError) as error:
                raise _which(name, given, error)
            answer = core.transport.ask(request)
            # A success that is recorded, and nothing to say about it: only the value is read.
            at = answer.find(SUCCESS) if answer.startswith(REPLAY) else -1
            if at > 0:
                value, end = scan(answer, at + SUCCESS_LENGTH)
                if answer.find('"headers"', end) < 0 and answer.find('"warning"', end) < 0:
                    return value if terms.read is None else terms.read(value)
            told, value = core.begin(terms, f'{where.text},"args":{rest}', answer)
            if told is None:
                return value
            effect = Effect(told, name, where.scope, where.step, given)
            return core.execute(terms, effect, function, args, kwargs)

        return wrapper

    def asynchronous(self) -> Any:
        function, bind, name = self.function, self.bind, self.name
        fixed = self.ledger
        own_key = self.key is not None
        last: Tuple[Any, Any] = (None, None)

        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            nonlocal last
            given = bind(args, kwargs)
            ledger = fixed or default()
            core = ledger.core
            known, terms = last
            if core is not known:
                terms = self.terms(ledger)
                if terms not in ledger._declared:
                    await ledger.aio._ready(terms)
                last = (core, terms)
            where = self.where(given)
            if where is None:
                raise NoScope(name)
            try:
                text = f'{where.text},"args":{dumps(given)}{self.key_text(given) if own_key else "}"}'
            except (TypeError, ValueError, RecursionError) as error:
                raise _which(name, given, error)
            told, value = await core.begin_async(terms, text)
            if told is None:
                return value
            effect = Effect(told, name, where.scope, where.step, given)
            return await core.execute_async(terms, effect, function, args, kwargs)

        return wrapper


def _which(name: str, given: Dict[str, Any], error: BaseException) -> BaseException:
    """The arguments are not JSON; or it is somebody else's exception, which is passed on."""
    try:
        dumps(given).encode()
    except (TypeError, ValueError, RecursionError):
        return not_json(name, given, error)
    return error


class effect:
    """A block that happens once.

    ::

        with semel.effect("charge", {"order": "A-17", "amount": 1000}) as e:
            if e.fresh:
                e.result = stripe.PaymentIntent.create(..., idempotency_key=e.key)
        print(e.result)

    ``e`` is a :class:`semel.Effect`. If it is fresh, the block executes it: its ``result`` is recorded when
    the block ends, and what it raises is recorded as the tool's class says. If it is done, ``e.result`` is
    the recorded result. A recorded failure is raised before the block begins. ``async with`` does the same
    for event loops. The scope is that of ``semel.scope`` unless it is given.
    """

    def __init__(
        self,
        tool: str,
        args: Any = None,
        *,
        scope: Optional[str] = None,
        step: Union[int, str, None] = None,
        key: Optional[str] = None,
        after: Optional[str] = None,
        ledger: Optional[AnyLedger] = None,
        wait: Optional[float] = None,
        not_applied: Optional[Types] = None,
        unknown: Optional[Types] = None,
        applied: Optional[Types] = None,
        returns: Any = None,
    ) -> None:
        self._tool = tool
        self._args = {} if args is None else args
        self._scope = scope
        self._step = None if step is None else str(step)
        self._key = key
        self._after = after
        self._ledger = ledger
        self._wait = wait
        self._judge = Judge(not_applied, unknown, applied)
        self._read = None if returns is None else _results.reader(returns)
        self._open: List[Any] = []

    def _prepare(self) -> Any:
        ledger = self._ledger or default()
        terms = Terms(
            self._tool, ledger.wait if self._wait is None else self._wait, self._judge, self._read
        )
        here = place.get()
        if self._scope is not None:
            here = Place(self._scope, self._step)
        elif self._step is not None and here is not None:
            here = Place(here.scope, self._step)
        text, where = call_text(self._tool, here, self._args, self._key, self._after)
        return ledger.core, terms, text, where

    def _enter(self, core: Any, terms: Terms, where: Place, told: Any, value: Any) -> Effect:
        found = Effect(told or {}, self._tool, where.scope, where.step, self._args, told is not None)
        found.result = value
        token = None
        if told is not None:
            token = running.set(found)
            if core.renewals is not None:
                core.renewals.add(found.claim, found.lease)
        self._open.append((core, terms, found, token))
        return found

    def _leave(self) -> Any:
        if not self._open:
            raise SemelError("the block was not entered")
        core, terms, found, token = self._open.pop()
        if token is not None:
            leave(token)
            if core.renewals is not None:
                core.renewals.remove(found.claim)
        return core, terms, found

    def __enter__(self) -> Effect:
        core, terms, text, where = self._prepare()
        told, value = core.begin(terms, text)
        return self._enter(core, terms, where, told, value)

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        core, terms, found = self._leave()
        if not found.fresh:
            return
        if error is not None:
            core.fail(terms, found, error)
        else:
            found.result = core.succeed(terms, found, found.result)

    async def __aenter__(self) -> Effect:
        core, terms, text, where = self._prepare()
        told, value = await core.begin_async(terms, text)
        return self._enter(core, terms, where, told, value)

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        core, terms, found = self._leave()
        if not found.fresh:
            return
        if error is not None:
            await core.fail_async(terms, found, error)
        else:
            found.result = await core.succeed_async(terms, found, found.result)
