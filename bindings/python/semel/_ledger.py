"""The ledger: what was done, what is being done, and what nobody knows."""

from __future__ import annotations

import copy
import os
import threading
import weakref

from types import TracebackType
from typing import (
    Any, Awaitable, Callable, Dict, Iterable, List, Mapping, Optional, Set, Tuple, Type, TypeVar, Union, cast,
    overload,
)  # fmt: skip

from . import _ops
from ._contract import contract as contract_of
from ._contract import unlisted
from ._engine import Core, OnApproval, Terms, forked, recorded
from ._errors import (
    NotFound,
    NotSupported,
    Partial,
    PartialSuccess,
    Refused,
    ReplayedError,
    SemelError,
    bad_arguments,
    refusal,
)
from ._flat import Flat
from ._http import Http
from ._json import dumps, dumps_value, loads
from ._judge import Judge, failure_value
from ._results import Reader
from ._scope import Place, place
from ._transport import Transport
from ._values import Begun, Call, Effect, Page, Record, Since

__all__ = ["AsyncLedger", "Ledger", "default", "open", "open_async", "use"]

T = TypeVar("T")
L = TypeVar("L", bound="_Base")

Contract = Union[str, "os.PathLike[str]", Mapping[str, Any]]


def _connect(options: Dict[str, Any]) -> Transport:
    url = options.get("url") or os.environ.get("SEMEL_LEDGER")
    if url and url.startswith(("http://", "https://")):
        wrong = [k for k in _embedded_only if options.get(k)]
        if wrong:
            raise NotSupported(
                f"{wrong[0]}= is for a ledger that this process opens. {url} is a gateway: it has its own "
                "contract file, and its tokens say who acts."
            )
        return Http(url, options.get("token") or os.environ.get("SEMEL_TOKEN"), options.get("tls"))
    given = {k: v for k, v in options.items() if v is not None and k in _flat_options}
    contract = options.get("contract")
    if isinstance(contract, Mapping):
        given["contract"] = dumps(dict(contract))
    elif contract is not None:
        given["contract_path"] = os.fspath(contract)
    for name, into in (("audit_retention", "audit_retention_ms"), ("tombstone", "tombstone_ms")):
        if options.get(name) is not None:
            given[into] = int(options[name] * 1000)
    if options.get("seal_key") is not None:
        given["seal_key_path"] = os.fspath(options["seal_key"])
    return Flat(given)


_flat_options = ("url", "actor", "cache_bytes", "must_exist")
_embedded_only = ("contract", "actor", "cache_bytes", "must_exist", "seal_key", "audit_retention", "tombstone")


#: What a child of a fork has to know about.
_all: "weakref.WeakSet[_Base]" = weakref.WeakSet()


class _Base:
    """What the ledger and its async twin share."""

    core: Core
    _options: Dict[str, Any]

    def __init__(self, core: Core, options: Dict[str, Any], shared: Optional["_Base"] = None) -> None:
        self.core = core
        self._options = options
        # Tools whose contract this ledger has; those that were asked for by name without a decorator.
        self._declared: Set[Terms] = set() if shared is None else shared._declared
        self._known: Dict[Tuple[str, float], Terms] = {} if shared is None else shared._known
        _all.add(self)

    @property
    def url(self) -> Optional[str]:
        """What was opened; None: the default."""
        return self.core.transport.url

    @property
    def wait(self) -> float:
        """For how many seconds a caller waits for somebody else's attempt or for an approval."""
        return cast(float, self._options["wait"])

    def __repr__(self) -> str:
        return f"<semel.{type(self).__name__} {_shown(self.url)}>"

    def __reduce__(self) -> Any:
        url = self._options.get("url") or os.environ.get("SEMEL_LEDGER") or ""
        if url.startswith("memory:"):
            raise TypeError("a memory: ledger belongs to its process; another one cannot open it")
        return _again, (type(self), {k: v for k, v in self._options.items() if k != "tls"})

    # ---- one call

    def _terms(self, tool: str, wait: Optional[float]) -> Terms:
        wait = self.wait if wait is None else wait
        terms = self._known.get((tool, wait))
        if terms is None:
            if len(self._known) > 10000:  # names that a model made up
                self._known.clear()
            terms = self._known[tool, wait] = Terms(tool, wait)
        return terms

    def _text(self, call: Call) -> Tuple[str, Place]:
        """The members of a call, behind those of its tool."""
        where = place.get()
        if call.scope is not None or call.step is not None:
            scope = call.scope if call.scope is not None else (where.scope if where else None)
            step = call.step
            if step is None and where is not None and call.scope is None:
                step = where.step
            where = None if scope is None else Place(scope, None if step is None else str(step))
        return call_text(call.tool, where, call.args, call.key, call.after)


def call_text(
    tool: str, where: Optional[Place], args: Any, key: Optional[str] = None, after: Optional[str] = None
) -> Tuple[str, Place]:
    """The members of a call as JSON."""
    from ._engine import place_of

    where = place_of(where, tool)
    try:
        text = where.text + ',"args":' + dumps(args)
        if key is not None:
            text += ',"key":' + dumps(key)
        if after is not None:
            text += ',"after":' + dumps(after)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise not_json(tool, args, error) from None
    return text + "}", where


def not_json(tool: str, args: Any, error: BaseException) -> SemelError:
    """Says which argument is not JSON, and what to do about it."""
    if isinstance(args, dict):
        for name, value in args.items():
            try:
                dumps(value).encode()
            except (TypeError, ValueError, RecursionError) as found:
                return bad_arguments(
                    f"{tool}: the argument {name!r} is not JSON ({found})",
                    f"Give it as JSON, or write exclude=[{name!r}] in the decorator if it says nothing about "
                    "what the call does.",
                )
    return bad_arguments(f"{tool}: the arguments are not JSON ({error})")


def _shown(url: Optional[str]) -> str:
    if url is None:
        return "default"
    head, at, tail = url.rpartition("@")
    return url if not at else head.split("//")[0] + "//...@" + tail


def _again(kind: Type[L], options: Dict[str, Any]) -> L:
    ledger = open(**options)
    return cast(L, ledger if kind is Ledger else ledger.aio)


class Ledger(_Base):
    """A ledger of tool calls. :func:`semel.open` makes one; any number of threads may use it.

    ::

        ledger = semel.open()
        receipt = ledger.run(semel.Call("charge", {"amount": 1000}, scope="order-123"), charge)

    A child of a fork may go on using it; a process that was spawned gets it by pickling, and opens the
    same URL again. For event loops there is :attr:`aio`, with the same methods as coroutines.
    """

    @property
    def aio(self) -> "AsyncLedger":
        """The same ledger with coroutines."""
        twin = self.__dict__.get("_aio")
        if twin is None:
            twin = self.__dict__["_aio"] = AsyncLedger(self.core, self._options, self)
        return cast(AsyncLedger, twin)

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def close(self) -> None:
        """Writes what is still to be written and lets go. The end of the process does it too."""
        self.core.close()

    def _ask(self, request: bytes) -> Dict[str, Any]:
        told: Dict[str, Any] = loads(self.core.transport.ask(request))
        return answered(told)

    # ---- doing something once

    def run(
        self,
        call: Call,
        handler: Callable[[Effect], T],
        *,
        wait: Optional[float] = None,
        judge: Optional[Judge] = None,
        returns: Optional[Reader] = None,
    ) -> T:
        """Has a call executed once, and gives everybody who asks again the recorded result.

        ``handler`` is called with the :class:`semel.Effect` if nobody has executed it. Whoever asks
        meanwhile waits for ``wait`` seconds (30) and gets the same result. What the handler raises is
        recorded as the tool's class says, and raised; a recorded failure comes back as
        :class:`semel.ReplayedError`. ``returns`` makes the recorded value the type that is wanted.
        """
        terms = self._terms(call.tool, wait)
        if judge is not None or returns is not None:
            terms = Terms(call.tool, terms.wait, judge, returns)
        text, where = self._text(call)
        told, value = self.core.begin(terms, text)
        if told is None:
            return cast(T, value)
        effect = Effect(told, call.tool, where.scope, where.step, call.args)
        return cast(T, self.core.execute(terms, effect, handler, (effect,), {}))

    def begin(self, call: Call, *, wait: float = 0) -> Begun:
        """Asks whether to execute a call yourself. If ``begun.fresh``, do it, then :meth:`commit`.

        Refusals are raised. The claim is renewed until the commit or the end of the process.
        """
        text, _ = self._text(call)
        terms = self._terms(call.tool, wait)
        told = loads(self.core.transport.ask(((terms.waiting if wait > 0 else terms.now) + text).encode()))
        return self._begun(told)

    def _begun(self, told: Dict[str, Any]) -> Begun:
        return begun_of(self.core, told)

    def commit(
        self,
        claim: Union[str, Begun, Effect],
        value: Any = None,
        *,
        error: Union[None, BaseException, str, Mapping[str, Any]] = None,
        kind: Optional[str] = None,
        applied: Optional[str] = None,
        status: Optional[int] = None,
        corrective_action: Optional[str] = None,
        cost: Union[None, str, float, int] = None,
        tokens: Optional[int] = None,
    ) -> Record:
        """Records how an attempt ended. Committing twice is harmless.

        Success needs only ``value``. ``error`` (an exception, a message, or a mapping with ``type`` and
        ``message``) records a failure: ``applied`` says whether the world was changed (``"no"``,
        ``"yes"``, ``"unknown"``); without it an exception is judged, and the tool's class decides the
        rest. ``kind="partial"`` with ``corrective_action`` records what was done in part.
        """
        claim, text = commit_text(
            claim, value, error, kind, applied, status, corrective_action, cost, tokens
        )
        told = self.core.commit(text)
        if self.core.renewals is not None:
            self.core.renewals.remove(claim)
        return Record(told)

    def renew(self, claim: Union[str, Begun, Effect], lease: Optional[float] = None) -> Record:
        """Lets a claim hold for ``lease`` seconds from now. Claims that this process got are renewed
        without it."""
        return Record(self._ask(_ops.request("renew", claim=_claim(claim), lease_ms=_ms(lease))))

    def release(self, claim: Union[str, Begun, Effect]) -> None:
        """Gives a claim back under which nothing was done: the next equal call runs."""
        claim = _claim(claim)
        if self.core.renewals is not None:
            self.core.renewals.remove(claim)
        self._ask(_ops.request("release", claim=claim))

    # ---- people

    def approve(
        self, request: str, *, if_version: Optional[int] = None, actor: Optional[str] = None
    ) -> Record:
        """Approves a request ``ap_...``. The call runs when it is made again, or still waits."""
        return Record(self._ask(_decide("approve", request, None, if_version, actor)))

    def deny(
        self,
        request: str,
        reason: str = "",
        *,
        if_version: Optional[int] = None,
        actor: Optional[str] = None,
    ) -> Record:
        """Denies a request ``ap_...``, for as long as the tool's window."""
        return Record(self._ask(_decide("deny", request, reason, if_version, actor)))

    def cancel(
        self,
        effect: str,
        reason: str = "",
        *,
        if_version: Optional[int] = None,
        actor: Optional[str] = None,
    ) -> Record:
        """Cancels what has not begun: a call that waits for an approval or is approved."""
        return Record(
            self._ask(
                _ops.request("cancel", effect=effect, reason=reason, if_version=if_version, actor=actor)
            )
        )

    def resolve(
        self,
        effect: str,
        result: str,
        *,
        evidence: str,
        value: Any = None,
        status: Optional[int] = None,
        if_version: Optional[int] = None,
        actor: Optional[str] = None,
    ) -> Record:
        """Says what became of an effect that is in doubt.

        ``result`` is ``"applied"`` (``value`` is its result then), ``"not_applied"`` (it may run again),
        ``"abandon"`` (it never does) or ``"compensate"`` (its undo runs). ``evidence`` says how you know.
        """
        return Record(self._ask(_resolve(effect, result, evidence, value, status, if_version, actor)))

    def forget(
        self,
        effect: str,
        reason: str = "",
        *,
        if_version: Optional[int] = None,
        actor: Optional[str] = None,
    ) -> Record:
        """Forgets a settled effect: the next equal call runs. Its history stays."""
        return Record(
            self._ask(
                _ops.request("forget", effect=effect, reason=reason, if_version=if_version, actor=actor)
            )
        )

    # ---- the stop button

    def stop(
        self,
        *,
        scope: Optional[str] = None,
        tool: Optional[str] = None,
        all: bool = False,
        reason: str = "",
        actor: Optional[str] = None,
    ) -> bool:
        """Refuses new writes of a scope and all below it, of a tool (a pattern with ``*`` and ``?``), or
        of everything, within a second in every process. False: it was stopped already."""
        return bool(self._ask(_ops.stop("stop", scope, tool, all, reason, actor)).get("changed", True))

    def resume(
        self,
        *,
        scope: Optional[str] = None,
        tool: Optional[str] = None,
        all: bool = False,
        reason: str = "",
        actor: Optional[str] = None,
    ) -> bool:
        """Takes a stop back, named as it was stopped. For a tool it also closes its circuits."""
        return bool(self._ask(_ops.stop("resume", scope, tool, all, reason, actor)).get("changed", True))

    def reset(self, scope: str, reason: str = "") -> bool:
        """Reopens a run that was stopped because it repeats itself."""
        return bool(self._ask(_ops.request("reset", scope=scope, reason=reason)).get("changed", True))

    def stops(self) -> Page:
        """What is stopped, and which circuits are open."""
        return Page(self._ask(_ops.request("stops")))

    # ---- reading

    def get(self, effect: str) -> Record:
        """The whole story of an effect (``ef_...``) or of a request (``ap_...``): its answer, arguments,
        attempts, requests and events. :class:`semel.NotFound` if there is none."""
        return Record(self._ask(_ops.request("effect", effect=effect)))

    def find(
        self, key: Optional[str] = None, *, scope: Optional[str] = None, caller_key: Optional[str] = None
    ) -> Optional[Record]:
        """The same by key text (43 characters, see :meth:`key`), or by ``scope`` and the caller's own key.
        None if there is none. Not through a gateway."""
        try:
            return Record(self._ask(_find(self.core, key, scope, caller_key)))
        except NotFound:
            return None

    def list(
        self,
        *,
        state: Union[None, str, Iterable[str]] = None,
        tool: Optional[str] = None,
        scope: Optional[str] = None,
        since: Optional[Since] = None,
        until: Optional[Since] = None,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
    ) -> Page:
        """Effects, the newest first. There are more as long as the page has a ``cursor``."""
        return Page(self._ask(_list(state, tool, scope, since, until, limit, cursor)))

    def events(
        self, effect: Optional[str] = None, *, after: Optional[int] = None, limit: Optional[int] = None
    ) -> Page:
        """The audit trail of an effect, or of all of them after a position."""
        return Page(self._ask(_ops.request("events", effect=effect, after=after, limit=limit)))

    def approvals(self, *, limit: Optional[int] = None) -> Page:
        """What waits for a person."""
        return Page(self._ask(_ops.request("approvals", limit=limit)))

    def tools(self) -> Page:
        """The contracts in use."""
        return Page(self._ask(_ops.request("tools")))

    def scopes(
        self,
        scope: Optional[str] = None,
        *,
        since: Optional[Since] = None,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
    ) -> Page:
        """Runs, the one with the newest call first."""
        return Page(
            self._ask(
                _ops.request("scopes", scope=scope, since=_ops.when(since), limit=limit, cursor=cursor)
            )
        )

    def scope(
        self, scope: str, *, since: Optional[Since] = None, limit: Optional[int] = None
    ) -> Record:
        """One run: its state, budgets, stops and newest effects."""
        return Record(
            self._ask(_ops.request("scope", scope=scope, since=_ops.when(since), limit=limit))
        )

    def spend(
        self,
        by: str = "tool",
        *,
        scope: Optional[str] = None,
        since: Optional[Since] = None,
        limit: Optional[int] = None,
    ) -> Record:
        """What was spent and what was not, by ``tool``, ``scope``, ``agent`` or ``day``."""
        return Record(
            self._ask(
                _ops.request("spend", by=by, scope=scope, since=_ops.when(since), limit=limit)
            )
        )

    def undo_plan(self, scope: str) -> Record:
        """What would undo a run, the newest effect first."""
        return Record(self._ask(_ops.request("undo_plan", scope=scope)))

    def stats(self) -> Record:
        """The state of the store, and what this handle has done. Not through a gateway."""
        return Record(self._ask(_ops.request("stats")))

    def verify(self) -> Record:
        """Checks the whole audit trail. Not through a gateway."""
        return Record(self._ask(_ops.request("verify")))

    def key(self, call: Call) -> Record:
        """The key of a call and how it is made. Not through a gateway."""
        text, _ = self._text(call)
        return Record(self._ask(_key(call.tool, text)))

    # ---- contracts and checkpoints

    def declare(self, tool: str, **knobs: Any) -> None:
        """Declares a tool by the knobs of :func:`semel.once`. Declaring the same again is harmless."""
        self._ready(Terms(tool, contract=contract_of(tool, **knobs)))

    def _ready(self, terms: Terms) -> None:
        """Makes sure that the ledger knows the tool's contract."""
        if self.core.transport.embedded:
            self._ask(_declare(terms))
        elif terms.contract:
            unlisted(terms.name, terms.contract, self._ask(_ops.request("tools")), self.url)
        self._declared.add(terms)

    def export(self, scope: Optional[str] = None) -> List[str]:
        """Every effect, or those of one scope, as one line of JSON each: a checkpoint.

        Keep it with your own. A run that is resumed elsewhere imports it first, and replays.
        """
        return [str(line) for line in self._ask(_ops.request("export", scope=scope))["lines"]]

    def import_(self, lines: Iterable[str]) -> Record:
        """Takes a checkpoint in. A settled effect that is here already wins; one that was running comes
        back in doubt."""
        return Record(self._ask(_ops.request("import", lines=list(lines))))


class AsyncLedger(_Base):
    """A ledger whose methods are coroutines; each does what the method of :class:`Ledger` does.

    No call blocks the event loop, no thread waits, and the default executor is never used. It works in
    asyncio, and in trio. What a tool did is recorded even if its task is cancelled.
    """

    async def __aenter__(self) -> "AsyncLedger":
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Writes what is still to be written and lets go."""
        self.core.close()

    @property
    def sync(self) -> Ledger:
        """The same ledger for threads."""
        return Ledger(self.core, self._options, self)

    async def _ask(self, request: bytes) -> Dict[str, Any]:
        return answered(loads(await self.core.transport.ask_async(request)))

    async def run(
        self,
        call: Call,
        handler: Callable[[Effect], Awaitable[T]],
        *,
        wait: Optional[float] = None,
        judge: Optional[Judge] = None,
        returns: Optional[Reader] = None,
    ) -> T:
        """See :meth:`Ledger.run`; ``handler`` is a coroutine function."""
        terms = self._terms(call.tool, wait)
        if judge is not None or returns is not None:
            terms = Terms(call.tool, terms.wait, judge, returns)
        text, where = self._text(call)
        told, value = await self.core.begin_async(terms, text)
        if told is None:
            return cast(T, value)
        effect = Effect(told, call.tool, where.scope, where.step, call.args)
        return cast(T, await self.core.execute_async(terms, effect, handler, (effect,), {}))

    async def begin(self, call: Call, *, wait: float = 0) -> Begun:
        """See :meth:`Ledger.begin`."""
        text, _ = self._text(call)
        terms = self._terms(call.tool, wait)
        request = ((terms.waiting if wait > 0 else terms.now) + text).encode()
        answer = await self.core.transport.ask_async(request, self.core._abandoned)
        return begun_of(self.core, loads(answer))

    async def commit(
        self,
        claim: Union[str, Begun, Effect],
        value: Any = None,
        *,
        error: Union[None, BaseException, str, Mapping[str, Any]] = None,
        kind: Optional[str] = None,
        applied: Optional[str] = None,
        status: Optional[int] = None,
        corrective_action: Optional[str] = None,
        cost: Union[None, str, float, int] = None,
        tokens: Optional[int] = None,
    ) -> Record:
        """See :meth:`Ledger.commit`."""
        claim, text = commit_text(
            claim, value, error, kind, applied, status, corrective_action, cost, tokens
        )
        told = await self.core.commit_async(text)
        if self.core.renewals is not None:
            self.core.renewals.remove(claim)
        return Record(told)

    async def renew(self, claim: Union[str, Begun, Effect], lease: Optional[float] = None) -> Record:
        """See :meth:`Ledger.renew`."""
        return Record(await self._ask(_ops.request("renew", claim=_claim(claim), lease_ms=_ms(lease))))

    async def release(self, claim: Union[str, Begun, Effect]) -> None:
        """See :meth:`Ledger.release`."""
        claim = _claim(claim)
        if self.core.renewals is not None:
            self.core.renewals.remove(claim)
        await self._ask(_ops.request("release", claim=claim))

    async def approve(
        self, request: str, *, if_version: Optional[int] = None, actor: Optional[str] = None
    ) -> Record:
        """See :meth:`Ledger.approve`."""
        return Record(await self._ask(_decide("approve", request, None, if_version, actor)))

    async def deny(
        self,
        request: str,
        reason: str = "",
        *,
        if_version: Optional[int] = None,
        actor: Optional[str] = None,
    ) -> Record:
        """See :meth:`Ledger.deny`."""
        return Record(await self._ask(_decide("deny", request, reason, if_version, actor)))

    async def cancel(
        self,
        effect: str,
        reason: str = "",
        *,
        if_version: Optional[int] = None,
        actor: Optional[str] = None,
    ) -> Record:
        """See :meth:`Ledger.cancel`."""
        return Record(
            await self._ask(
                _ops.request("cancel", effect=effect, reason=reason, if_version=if_version, actor=actor)
            )
        )

    async def resolve(
        self,
        effect: str,
        result: str,
        *,
        evidence: str,
        value: Any = None,
        status: Optional[int] = None,
        if_version: Optional[int] = None,
        actor: Optional[str] = None,
    ) -> Record:
        """See :meth:`Ledger.resolve`."""
        return Record(
            await self._ask(_resolve(effect, result, evidence, value, status, if_version, actor))
        )

    async def forget(
        self,
        effect: str,
        reason: str = "",
        *,
        if_version: Optional[int] = None,
        actor: Optional[str] = None,
    ) -> Record:
        """See :meth:`Ledger.forget`."""
        return Record(
            await self._ask(
                _ops.request("forget", effect=effect, reason=reason, if_version=if_version, actor=actor)
            )
        )

    async def stop(
        self,
        *,
        scope: Optional[str] = None,
        tool: Optional[str] = None,
        all: bool = False,
        reason: str = "",
        actor: Optional[str] = None,
    ) -> bool:
        """See :meth:`Ledger.stop`."""
        told = await self._ask(_ops.stop("stop", scope, tool, all, reason, actor))
        return bool(told.get("changed", True))

    async def resume(
        self,
        *,
        scope: Optional[str] = None,
        tool: Optional[str] = None,
        all: bool = False,
        reason: str = "",
        actor: Optional[str] = None,
    ) -> bool:
        """See :meth:`Ledger.resume`."""
        told = await self._ask(_ops.stop("resume", scope, tool, all, reason, actor))
        return bool(told.get("changed", True))

    async def reset(self, scope: str, reason: str = "") -> bool:
        """See :meth:`Ledger.reset`."""
        told = await self._ask(_ops.request("reset", scope=scope, reason=reason))
        return bool(told.get("changed", True))

    async def stops(self) -> Page:
        """See :meth:`Ledger.stops`."""
        return Page(await self._ask(_ops.request("stops")))

    async def get(self, effect: str) -> Record:
        """See :meth:`Ledger.get`."""
        return Record(await self._ask(_ops.request("effect", effect=effect)))

    async def find(
        self, key: Optional[str] = None, *, scope: Optional[str] = None, caller_key: Optional[str] = None
    ) -> Optional[Record]:
        """See :meth:`Ledger.find`."""
        try:
            return Record(await self._ask(_find(self.core, key, scope, caller_key)))
        except NotFound:
            return None

    async def list(
        self,
        *,
        state: Union[None, str, Iterable[str]] = None,
        tool: Optional[str] = None,
        scope: Optional[str] = None,
        since: Optional[Since] = None,
        until: Optional[Since] = None,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
    ) -> Page:
        """See :meth:`Ledger.list`."""
        return Page(await self._ask(_list(state, tool, scope, since, until, limit, cursor)))

    async def events(
        self, effect: Optional[str] = None, *, after: Optional[int] = None, limit: Optional[int] = None
    ) -> Page:
        """See :meth:`Ledger.events`."""
        return Page(await self._ask(_ops.request("events", effect=effect, after=after, limit=limit)))

    async def approvals(self, *, limit: Optional[int] = None) -> Page:
        """See :meth:`Ledger.approvals`."""
        return Page(await self._ask(_ops.request("approvals", limit=limit)))

    async def tools(self) -> Page:
        """See :meth:`Ledger.tools`."""
        return Page(await self._ask(_ops.request("tools")))

    async def scopes(
        self,
        scope: Optional[str] = None,
        *,
        since: Optional[Since] = None,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
    ) -> Page:
        """See :meth:`Ledger.scopes`."""
        return Page(
            await self._ask(
                _ops.request("scopes", scope=scope, since=_ops.when(since), limit=limit, cursor=cursor)
            )
        )

    async def scope(
        self, scope: str, *, since: Optional[Since] = None, limit: Optional[int] = None
    ) -> Record:
        """See :meth:`Ledger.scope`."""
        return Record(
            await self._ask(_ops.request("scope", scope=scope, since=_ops.when(since), limit=limit))
        )

    async def spend(
        self,
        by: str = "tool",
        *,
        scope: Optional[str] = None,
        since: Optional[Since] = None,
        limit: Optional[int] = None,
    ) -> Record:
        """See :meth:`Ledger.spend`."""
        return Record(
            await self._ask(
                _ops.request("spend", by=by, scope=scope, since=_ops.when(since), limit=limit)
            )
        )

    async def undo_plan(self, scope: str) -> Record:
        """See :meth:`Ledger.undo_plan`."""
        return Record(await self._ask(_ops.request("undo_plan", scope=scope)))

    async def stats(self) -> Record:
        """See :meth:`Ledger.stats`."""
        return Record(await self._ask(_ops.request("stats")))

    async def verify(self) -> Record:
        """See :meth:`Ledger.verify`."""
        return Record(await self._ask(_ops.request("verify")))

    async def key(self, call: Call) -> Record:
        """See :meth:`Ledger.key`."""
        text, _ = self._text(call)
        return Record(await self._ask(_key(call.tool, text)))

    async def declare(self, tool: str, **knobs: Any) -> None:
        """See :meth:`Ledger.declare`."""
        await self._ready(Terms(tool, contract=contract_of(tool, **knobs)))

    async def _ready(self, terms: Terms) -> None:
        if self.core.transport.embedded:
            await self._ask(_declare(terms))
        elif terms.contract:
            unlisted(terms.name, terms.contract, await self._ask(_ops.request("tools")), self.url)
        self._declared.add(terms)

    async def export(self, scope: Optional[str] = None) -> List[str]:
        """See :meth:`Ledger.export`."""
        told = await self._ask(_ops.request("export", scope=scope))
        return [str(line) for line in told["lines"]]

    async def import_(self, lines: Iterable[str]) -> Record:
        """See :meth:`Ledger.import_`."""
        given = [line for line in lines]
        return Record(await self._ask(_ops.request("import", lines=given)))


# ---- requests that both make


def answered(told: Dict[str, Any]) -> Dict[str, Any]:
    """An answer, unless it is a problem."""
    if "code" in told and ("status" in told or told.get("verdict") == "refused"):
        raise refusal(told)
    return told


def begun_of(core: Core, told: Dict[str, Any]) -> Begun:
    verdict = told.get("verdict")
    if verdict == "execute":
        begun = Begun(told)
        if core.renewals is not None and begun.claim is not None:
            core.renewals.add(begun.claim, begun.lease)
        return begun
    if verdict != "replay":
        raise refusal(told)
    try:
        return Begun(told, recorded(told))
    except (ReplayedError, Refused) as error:
        return Begun(told, error=error)


def _claim(given: Union[str, Begun, Effect]) -> str:
    claim = given if isinstance(given, str) else given.claim
    if claim is None:
        raise bad_arguments("there is no claim: nothing is recorded of this call")
    return claim


def _ms(seconds: Optional[float]) -> Optional[int]:
    return None if seconds is None else int(seconds * 1000)


def commit_text(
    given: Union[str, Begun, Effect],
    value: Any,
    error: Union[None, BaseException, str, Mapping[str, Any]],
    kind: Optional[str],
    applied: Optional[str],
    status: Optional[int],
    corrective_action: Optional[str],
    cost: Union[None, str, float, int],
    tokens: Optional[int],
) -> Tuple[str, str]:
    claim = _claim(given)
    if kind is None:
        kind = "failure" if error is not None or applied is not None else "success"
    headers = None
    if isinstance(error, Partial) and not isinstance(error, PartialSuccess):
        kind = "partial"
        text, headers = dumps_value(error.value)
        corrective_action = corrective_action or error.corrective_action or None
    elif isinstance(error, BaseException):
        text = failure_value(error)
        if applied is None:
            applied, seen = Judge()(error)
            status = seen if status is None else status
    elif isinstance(error, str):
        text = dumps({"type": "Error", "message": error})
    elif error is not None:
        text = dumps(dict(error))
    else:
        text, headers = dumps_value(value)
    members = ['{"op":"commit","claim":' + dumps(claim) + ',"kind":' + dumps(kind), '"value":' + text]
    for name, member in (
        ("applied", applied),
        ("status", status),
        ("corrective_action", corrective_action),
        ("cost", None if cost is None else str(cost)),
        ("tokens", tokens),
        ("headers", None if headers is None else {"Content-Type": headers}),
    ):
        if member is not None:
            members.append(f'"{name}":' + dumps(member))
    return claim, ",".join(members) + "}"


def _decide(
    op: str, request: str, reason: Optional[str], if_version: Optional[int], actor: Optional[str]
) -> bytes:
    # The path of the HTTP API names an effect, or one of its requests.
    return _ops.request(
        op, effect=request, request=request, reason=reason, if_version=if_version, actor=actor
    )


def _resolve(
    effect: str,
    result: str,
    evidence: str,
    value: Any,
    status: Optional[int],
    if_version: Optional[int],
    actor: Optional[str],
) -> bytes:
    outcome = _ops.outcome(value, status) if value is not None or status is not None else None
    return _ops.request(
        "resolve",
        effect=effect,
        result=result,
        evidence=evidence,
        outcome=outcome,
        if_version=if_version,
        actor=actor,
    )


def _list(
    state: Union[None, str, Iterable[str]],
    tool: Optional[str],
    scope: Optional[str],
    since: Optional[Since],
    until: Optional[Since],
    limit: Optional[int],
    cursor: Optional[str],
) -> bytes:
    return _ops.request(
        "effects",
        state=_ops.states(state),
        tool=tool,
        scope=scope,
        since=_ops.when(since),
        until=_ops.when(until),
        limit=limit,
        cursor=cursor,
    )


def _find(core: Core, key: Optional[str], scope: Optional[str], caller_key: Optional[str]) -> bytes:
    if (key is None) == (caller_key is None) or (caller_key is not None and scope is None):
        raise bad_arguments("find takes the text of a key, or scope and caller_key")
    if not core.transport.embedded:
        raise NotSupported("A gateway finds effects by their handles. Use get(), or list() with a filter.")
    if key is not None:
        return _ops.request("effect", effect=key)
    return _ops.request("effect", scope=scope, key=caller_key)


def _key(tool: str, text: str) -> bytes:
    return ('{"op":"key","tool":' + dumps(tool) + "," + text).encode()


def _declare(terms: Terms) -> bytes:
    if terms.contract:
        return _ops.request("declare", tools={terms.name: terms.contract})
    return _ops.request("declare", tools={terms.name: {}}, unless_listed=True)


# ---- opening


def open(
    url: Optional[str] = None,
    *,
    contract: Optional[Contract] = None,
    token: Optional[str] = None,
    actor: Optional[str] = None,
    wait: float = 30.0,
    on_approval: Optional[OnApproval] = None,
    on_warning: Optional[Callable[[str], None]] = None,
    must_exist: bool = False,
    cache_bytes: Optional[int] = None,
    seal_key: Optional[str] = None,
    audit_retention: Optional[float] = None,
    tombstone: Optional[float] = None,
    tls: Any = None,
) -> Ledger:
    """Opens a ledger.

    ============================  ====================================================================
    ``sqlite:PATH``               a file, for all processes of one machine
    ``postgres://``, ``redis://`` a server, for many machines
    ``http://``, ``https://``     a gateway (``semel serve``), with ``token`` or ``SEMEL_TOKEN``
    ``memory:``                   this process only, gone when it ends
    None                          ``SEMEL_LEDGER``, else the user's own file
    ============================  ====================================================================

    ``contract`` is a file that declares tools, or its content as a mapping. ``wait`` is for how many
    seconds a caller waits for somebody else's attempt or for an approval. ``on_approval`` is called with
    :class:`semel.AwaitingApproval` when a call of this process waits for a person; it is called again if
    it raises. ``on_warning`` gets sentences for the model; without it they are logged. ``actor`` is who
    acts, for the audit trail. ``must_exist`` makes no new ledger. ``seal_key`` is a file whose bytes key
    the seals of the audit trail; ``audit_retention`` and ``tombstone`` are seconds.
    """
    options: Dict[str, Any] = dict(
        url=url, contract=contract, token=token, actor=actor, wait=wait, on_approval=on_approval,
        on_warning=on_warning, must_exist=must_exist or None, cache_bytes=cache_bytes, seal_key=seal_key,
        audit_retention=audit_retention, tombstone=tombstone, tls=tls,
    )  # fmt: skip
    return Ledger(Core(_connect(options), on_approval, on_warning), options)


@overload
def open_async(url: Optional[str] = None) -> AsyncLedger: ...
@overload
def open_async(url: Optional[str] = None, **options: Any) -> AsyncLedger: ...
def open_async(url: Optional[str] = None, **options: Any) -> AsyncLedger:
    """The same as :func:`open`, for event loops. Opening itself blocks for a moment."""
    return open(url, **options).aio


_default: Optional[Ledger] = None
_opening = threading.Lock()


def default() -> Ledger:
    """The ledger of everything that names none: the one of :func:`use`, else ``semel.open()``."""
    global _default
    ledger = _default
    if ledger is None:
        with _opening:
            if _default is None:
                _default = open()
            ledger = _default
    return ledger


def use(ledger: Union[Ledger, AsyncLedger, str, None]) -> Optional[Ledger]:
    """Makes a ledger, or the URL of one, the default of this process. None: the user's own again.

    Gives the one that was the default before.
    """
    global _default
    before = _default
    if isinstance(ledger, str):
        ledger = open(ledger)
    _default = ledger.sync if isinstance(ledger, AsyncLedger) else ledger
    return before


def _forked() -> None:
    global _opening
    _opening = threading.Lock()
    forked()
    # The library opens the ledger anew, so decorators declare their contracts anew: they do when they see
    # another core.
    cores: Dict[int, Core] = {}
    for ledger in list(_all):
        ledger._declared.clear()
        ledger.core = cores.setdefault(id(ledger.core), copy.copy(ledger.core))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
