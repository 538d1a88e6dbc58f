"""One call, once: ask, run, judge, record. All doors of the package come through here.

No rule of the ledger is here. What a call is, whether it may run and what its end means is the core's; this
file writes the requests, reads the answers and tells what the tool raised.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from typing import Any, Awaitable, Callable, Dict, List, Optional, Tuple, Union

from . import _errors
from ._errors import NotApplied, Partial, PartialSuccess, ReplayedError, SemelError, refusal
from ._json import TEXT, as_text, bad_text, dumps, dumps_value, loads, scan
from ._judge import Judge, failure_value
from ._results import Reader, decode
from ._scope import Place, leave, running
from ._transport import Transport
from ._values import Effect

__all__ = ["Core", "Terms"]

log = logging.getLogger("semel")

#: A commit that the ledger does not take is tried again for so long; then the lease runs out.
commit_seconds = 15.0

#: Why a call may be asked again with time to wait.
_waits = frozenset(("RETRY_IN_FLIGHT", "AWAITING_APPROVAL", "UPSTREAM_TIMEOUT"))

REPLAY = '{"verdict":"replay"'
SUCCESS = ',"outcome":{"kind":"success","encoding":"json","value":'
SUCCESS_LENGTH = len(SUCCESS)
_done = '{"verdict":"done"'

OnApproval = Callable[[Any], Union[None, Awaitable[None]]]


class Terms:
    """What is known of a tool before it is called: its name, how long its callers wait, its judge."""

    __slots__ = ("contract", "judge", "name", "now", "read", "waiting", "wait")

    def __init__(
        self,
        name: str,
        wait: float = 30.0,
        judge: Optional[Judge] = None,
        read: Optional[Reader] = None,
        contract: Optional[Dict[str, Any]] = None,
    ) -> None:
        self.name = name
        self.wait = wait
        self.judge = judge or _judge
        self.read = read
        self.contract = contract
        quoted = dumps(name)
        self.now = '{"op":"begin","wait_ms":0,"tool":' + quoted + ","
        self.waiting = f'{{"op":"begin","wait_ms":{max(0, int(wait * 1000))},"tool":{quoted},'


_judge = Judge()


class Core:
    """A transport, with what calls need beside it."""

    def __init__(
        self,
        transport: Transport,
        on_approval: Optional[OnApproval] = None,
        on_warning: Optional[Callable[[str], None]] = None,
    ) -> None:
        self.transport = transport
        self.on_approval = on_approval
        self.on_warning = on_warning
        self.renewals = None if transport.renews else Renewals(transport)
        self._told: Dict[str, None] = {}

    # ---- asking

    def begin(
        self, terms: Terms, call: str, answer: Optional[str] = None
    ) -> Tuple[Optional[Dict[str, Any]], Any]:
        """Asks for a call, whose members are written in ``call``; ``answer`` if that was done already.

        Either (None, the recorded value), or the answer that lets us execute. Everything else is raised.
        """
        if answer is None:
            answer = self.transport.ask((terms.now + call).encode())
        if answer.startswith(REPLAY):
            at = answer.find(SUCCESS)
            if at > 0:
                return None, self._value(terms, answer, at + SUCCESS_LENGTH)
        told = loads(answer)
        if told.get("code") == "AWAITING_APPROVAL":
            self._tell(told)
        if terms.wait > 0 and told.get("code") in _waits and told.get("verdict") != "replay":
            told = loads(self.transport.ask_waiting((terms.waiting + call).encode()))
        return self._told_to(terms, told)

    async def begin_async(self, terms: Terms, call: str) -> Tuple[Optional[Dict[str, Any]], Any]:
        """The same for event loops."""
        transport = self.transport
        request = (terms.now + call).encode()
        answer = transport.recall(request)
        if answer is None:
            if self.on_approval is None and terms.wait > 0:
                request = (terms.waiting + call).encode()
            answer = await transport.ask_async(request, self._abandoned)
        if answer.startswith(REPLAY):
            at = answer.find(SUCCESS)
            if at > 0:
                return None, self._value(terms, answer, at + SUCCESS_LENGTH)
        told = loads(answer)
        if told.get("code") == "AWAITING_APPROVAL":
            await self._tell_async(told)
        if self.on_approval is not None and terms.wait > 0 and told.get("code") in _waits:
            told = loads(await transport.ask_async((terms.waiting + call).encode(), self._abandoned))
        return self._told_to(terms, told)

    def _value(self, terms: Terms, answer: str, at: int) -> Any:
        # Only the value is read. What stands behind it is short.
        value, end = scan(answer, at)
        if answer.find('"headers"', end) < 0 and answer.find('"warning"', end) < 0:
            return value if terms.read is None else terms.read(value)
        return self._told_to(terms, loads(answer))[1]

    def _told_to(self, terms: Terms, told: Dict[str, Any]) -> Tuple[Optional[Dict[str, Any]], Any]:
        warning = told.get("warning")
        if warning:
            self._warn(warning)
        verdict = told.get("verdict")
        if verdict == "execute":
            return told, None
        if verdict == "replay":
            return None, recorded(told, terms.read)
        raise refusal(told)

    def _warn(self, text: str) -> None:
        if self.on_warning is not None:
            self.on_warning(text)
        else:
            log.warning("%s", text)

    def _tell(self, told: Dict[str, Any]) -> None:
        """Tells somebody that an approval waits: once for each request, and again if that failed."""
        request = told.get("request")
        if self.on_approval is None or not isinstance(request, str) or request in self._told:
            return
        try:
            left = self.on_approval(refusal(told))
        except Exception:
            log.exception("on_approval failed; the next call tells of %s again", request)
            return
        if left is not None:
            close = getattr(left, "close", None)
            if close is not None:
                close()
            raise TypeError("on_approval is a coroutine function: use it with semel.open_async()")
        self._remember(request)

    async def _tell_async(self, told: Dict[str, Any]) -> None:
        request = told.get("request")
        if self.on_approval is None or not isinstance(request, str) or request in self._told:
            return
        try:
            left = self.on_approval(refusal(told))
            if left is not None:
                await left
        except Exception:
            log.exception("on_approval failed; the next call tells of %s again", request)
            return
        self._remember(request)

    def _remember(self, request: str) -> None:
        self._told[request] = None
        if len(self._told) > 10000:
            for old in list(self._told)[:1000]:
                self._told.pop(old, None)

    def _abandoned(self, answer: str) -> None:
        """The caller of a begin was cancelled, and its answer came nevertheless."""
        claim = loads(answer).get("claim")
        if claim:  # giving it back writes to the ledger, and this may be the thread of an event loop
            threading.Thread(target=self._release, args=(claim,), name="semel-release", daemon=True).start()

    def _release(self, claim: str) -> None:
        """Gives a claim back under which nothing was done."""
        head = '{"op":"release","claim":' + dumps(claim) + "}"
        try:
            told = loads(self.transport.ask(head.encode()))
            if told.get("code") not in ("NOT_FOUND", "NO_ROUTE"):
                return
            # A gateway that knows no release: nothing was done, and that can be said.
            text = '{"op":"commit","claim":' + dumps(claim) + ',"kind":"failure","applied":"no","value":'
            text += '{"type":"Cancelled","message":"the caller left before the tool ran"}}'
            self.transport.ask(text.encode())
        except SemelError as error:
            log.warning("a claim could not be given back: %s", error)

    # ---- running

    def execute(
        self,
        terms: Terms,
        effect: Effect,
        function: Callable[..., Any],
        args: Tuple[Any, ...],
        kwargs: Dict[str, Any],
    ) -> Any:
        """Runs the tool, records how it ended, and returns or raises that."""
        claim = effect.claim
        renewals = self.renewals if claim is not None else None
        if renewals is not None:
            renewals.add(claim, effect.lease)
        token = running.set(effect)
        try:
            try:
                result = function(*args, **kwargs)
                if hasattr(result, "__await__"):
                    result = _not_awaited(terms.name, result)
            finally:
                leave(token)
        except BaseException as error:
            if renewals is not None:
                renewals.remove(claim)
            self.fail(terms, effect, error)
            raise
        if renewals is not None:
            renewals.remove(claim)
        return self.succeed(terms, effect, result)

    async def execute_async(
        self,
        terms: Terms,
        effect: Effect,
        function: Callable[..., Awaitable[Any]],
        args: Tuple[Any, ...],
        kwargs: Dict[str, Any],
    ) -> Any:
        """The same for coroutine functions. What is recorded is recorded even if we are cancelled."""
        claim = effect.claim
        renewals = self.renewals if claim is not None else None
        if renewals is not None:
            renewals.add(claim, effect.lease)
        token = running.set(effect)
        try:
            try:
                result = await function(*args, **kwargs)
            finally:
                leave(token)
        except BaseException as error:
            if renewals is not None:
                renewals.remove(claim)
            await self.fail_async(terms, effect, error)
            raise
        if renewals is not None:
            renewals.remove(claim)
        return await self.succeed_async(terms, effect, result)

    # ---- recording

    def succeed(self, terms: Terms, effect: Effect, result: Any) -> Any:
        """Records a result. What to return: the result, or what is recorded instead of it."""
        if effect.claim is None:
            passed = _passed(effect, result)
            if passed is not None:
                self.transport.ask(passed)
            return result
        try:
            told = self.commit(success(effect, result), lambda: fallback(effect, result))
        except _errors.Refused as error:
            raise _unrecorded(error, result) from error
        return _settled(terms, told, result)

    async def succeed_async(self, terms: Terms, effect: Effect, result: Any) -> Any:
        if effect.claim is None:
            passed = _passed(effect, result)
            if passed is not None:
                await self.transport.settle(passed)
            return result
        try:
            told = await self.commit_async(success(effect, result), lambda: fallback(effect, result))
        except _errors.Refused as error:
            raise _unrecorded(error, result) from error
        return _settled(terms, told, result)

    def fail(self, terms: Terms, effect: Effect, error: BaseException) -> None:
        """Records what an exception means. The exception itself goes on to the caller."""
        if effect.claim is None:
            return
        try:
            self.commit(failure(terms, effect, error), lambda: bare(terms, effect, error))
        except _errors.Refused as lost:
            log.error("%s of %s could not be recorded: %s", type(error).__name__, terms.name, lost)

    async def fail_async(self, terms: Terms, effect: Effect, error: BaseException) -> None:
        if effect.claim is None:
            return
        try:
            text = failure(terms, effect, error)
            if isinstance(error, GeneratorExit):  # nothing can be awaited any more
                self.commit(text, lambda: bare(terms, effect, error))
            else:
                await self.commit_async(text, lambda: bare(terms, effect, error))
        except _errors.Refused as lost:
            log.error("%s of %s could not be recorded: %s", type(error).__name__, terms.name, lost)

    def commit(self, text: str, otherwise: Optional[Callable[[], str]] = None) -> Dict[str, Any]:
        """Commits; again while the ledger is not there. ``otherwise`` makes a smaller text."""
        tries = _Tries()
        while True:
            try:
                answer = self.transport.ask(text.encode())
            except _errors.LedgerUnavailable as error:
                told = error.answer
            else:
                if answer.startswith(_done):
                    return _result_of(answer)
                told = loads(answer)
            smaller = tries.next(told, otherwise)
            if smaller is not None:
                text, otherwise = smaller, None
                continue
            time.sleep(tries.seconds)

    async def commit_async(self, text: str, otherwise: Optional[Callable[[], str]] = None) -> Dict[str, Any]:
        tries = _Tries()
        while True:
            try:
                answer = await self.transport.settle(text.encode())
            except _errors.LedgerUnavailable as error:
                told = error.answer
            else:
                if answer.startswith(_done):
                    return _result_of(answer)
                told = loads(answer)
            smaller = tries.next(told, otherwise)
            if smaller is not None:
                text, otherwise = smaller, None
                continue
            await self.transport.pause(tries.seconds)

    def close(self) -> None:
        if self.renewals is not None:
            self.renewals.close()
        self.transport.close()


class _Tries:
    """When a commit is tried again, and when no more."""

    def __init__(self) -> None:
        self.until = time.monotonic() + commit_seconds
        self.seconds = 0.02

    def next(self, told: Dict[str, Any], otherwise: Optional[Callable[[], str]]) -> Optional[str]:
        """The smaller text to commit now; None: the same text after ``seconds``. Raises at the end."""
        code = told.get("code")
        if otherwise is not None and code in ("BAD_ARGUMENTS", "TOO_LARGE"):
            return otherwise()
        if not told.get("retriable") or time.monotonic() > self.until:
            raise refusal(told)
        self.seconds = min(1.0, self.seconds * 2) * random.uniform(0.75, 1.0)
        return None


def _result_of(answer: str) -> Dict[str, Any]:
    # "result" stands second. The rest matters only if the attempt had lost its claim.
    if answer.startswith('"result":"committed"', 18):
        return _committed
    told: Dict[str, Any] = loads(answer)
    return told


_committed: Dict[str, Any] = {"verdict": "done", "result": "committed"}


def _settled(terms: Terms, told: Dict[str, Any], result: Any) -> Any:
    if told.get("result") == "unrecorded":
        log.error("%s: the ledger does not take the outcome of %s for now; it is tried again as long as this "
                  "process runs", terms.name, told.get("effect"))  # fmt: skip
    if told.get("result") != "late_evidence":
        return result
    # Somebody decided about this effect while its tool ran. Everybody gets what is recorded.
    log.warning("%s: an attempt ended after its effect %s was settled", terms.name, told.get("effect"))
    outcome = told.get("outcome")
    if isinstance(outcome, dict) and outcome.get("kind") == "success" and "value" in outcome:
        return decode(outcome["value"], outcome.get("headers"), terms.read)
    return result


def _passed(effect: Effect, result: Any) -> Optional[bytes]:
    """A read is not recorded, but a run that reads the same again and again is noticed."""
    mark = effect.answer.get("pass")
    if mark is None:
        return None
    text = '{"op":"passed","pass":' + dumps(mark) + ',"scope":' + dumps(effect.scope)
    text += ',"tool":' + dumps(effect.tool)
    try:
        value = dumps(result).encode()
        return text.encode() + b',"value":' + value + b"}" if len(value) < 1 << 20 else None
    except (TypeError, ValueError, RecursionError):
        return text.encode() + b"}"


def _unrecorded(error: _errors.Refused, result: Any) -> _errors.Unrecorded:
    answer = dict(error.answer)
    answer["message"] = "The tool ran, but its outcome could not be recorded: " + error.message
    return _errors.Unrecorded(answer, result=result)


def _not_awaited(name: str, result: Any) -> Any:
    if hasattr(result, "close"):
        result.close()
    raise NotApplied(f"{name} returned something to await: decorate the coroutine function itself")


def recorded(told: Dict[str, Any], read: Optional[Reader] = None) -> Any:
    """The value of a replay. Raises the recorded failure, or PartialSuccess."""
    outcome = told.get("outcome") or {}
    value = outcome.get("value")
    if outcome.get("encoding") == "base64" and isinstance(value, str):
        import base64

        value = base64.b64decode(value)
    kind = outcome.get("kind", "success")
    if outcome.get("kept") is False and outcome.get("bytes"):
        raise refusal(dict(
            told, code="RESULT_EXPIRED", retriable=False,
            message="This was done already; its result was too large to be kept.",
            corrective_action="Go on without the result, or read it from where it took effect.",
        ))  # fmt: skip
    if kind == "success":
        return decode(value, outcome.get("headers"), read)
    if kind == "partial":
        raise PartialSuccess(dict(told, code="PARTIAL_SUCCESS"), decoded=value)
    effect = told.get("effect")
    if isinstance(value, dict) and isinstance(value.get("type"), str):
        raise ReplayedError(value["type"], str(value.get("message", "")), value.get("value"), effect)
    raise ReplayedError("Failure", "" if value is None else str(value), value, effect)


# ---- the texts of commits


def _head(effect: Effect, kind: str) -> str:
    text = f'{{"op":"commit","claim":"{effect.claim}","kind":"{kind}"'
    if effect.cost is not None:
        text += ',"cost":' + dumps(str(effect.cost))
    if effect.tokens is not None:
        text += ',"tokens":' + dumps(int(effect.tokens))
    return text


def success(effect: Effect, result: Any) -> str:
    value, kind = dumps_value(result)
    text = _head(effect, "success") + ',"value":' + value
    if effect.status is not None:
        text += f',"status":{int(effect.status)}'
    headers = dict(effect.headers or {})
    if kind is not None:
        headers["Content-Type"] = kind
    if headers:
        text += ',"headers":' + dumps(headers)
    return text + "}"


def fallback(effect: Effect, result: Any) -> str:
    """A result that the ledger does not take, because it is too large or too deep: as text."""
    return (
        _head(effect, "success") + ',"value":' + dumps(bad_text(as_text(result)))
        + ',"headers":{"Content-Type":' + dumps(TEXT) + "}}"
    )  # fmt: skip


def failure(terms: Terms, effect: Effect, error: BaseException) -> str:
    if isinstance(error, Partial) and not isinstance(error, PartialSuccess):
        value, kind = dumps_value(error.value)
        text = _head(effect, "partial") + ',"value":' + value
        if error.corrective_action:
            text += ',"corrective_action":' + dumps(bad_text(error.corrective_action))
        if kind is not None:
            text += ',"headers":{"Content-Type":' + dumps(kind) + "}"
        return text + "}"
    return _failure(terms, effect, error, failure_value(error))


def bare(terms: Terms, effect: Effect, error: BaseException) -> str:
    """The same without what the ledger may not take."""
    if isinstance(error, Partial) and not isinstance(error, PartialSuccess):
        value = dumps(bad_text(as_text(error.value)))
        return _head(effect, "partial") + ',"value":' + value + ',"corrective_action":' + dumps(
            bad_text(error.corrective_action or "")[:1000]
        ) + "}"
    return _failure(terms, effect, error, '{"type":' + dumps(type(error).__qualname__) + "}")


def _failure(terms: Terms, effect: Effect, error: BaseException, value: str) -> str:
    try:
        applied, status = terms.judge(error)
    except Exception:  # a property of the exception's own
        applied, status = "unknown", None
    text = _head(effect, "failure")
    if applied is not None:
        text += f',"applied":"{applied}"'
    if effect.status is not None:
        status = int(effect.status)
    if status is not None:
        text += f',"status":{status}'
    return text + ',"value":' + value + "}"


# ---- leases over HTTP


class Renewals:
    """One daemon thread that renews all claims of this process, each when a third of its lease is over."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._lock = threading.Condition()
        self._claims: Dict[str, List[float]] = {}  # when it is due, and its lease
        self._thread: Optional[threading.Thread] = None
        self._closed = False
        _all.append(self)

    def add(self, claim: Optional[str], lease: float) -> None:
        if claim is None or lease <= 0:
            return
        with self._lock:
            self._claims[claim] = [time.monotonic() + lease / 3, lease]
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._renew, name="semel-renew", daemon=True)
                self._thread.start()
            self._lock.notify()

    def remove(self, claim: Optional[str]) -> None:
        if claim is not None:
            with self._lock:
                self._claims.pop(claim, None)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._claims.clear()
            self._lock.notify()
        if self in _all:
            _all.remove(self)

    def _renew(self) -> None:
        while True:
            with self._lock:
                if self._closed:
                    return
                now = time.monotonic()
                due = [claim for claim, (at, _) in self._claims.items() if at <= now]
                if not due:
                    next_at = min((at for at, _ in self._claims.values()), default=now + 60)
                    self._lock.wait(max(0.01, next_at - now))
                    continue
            for claim in due:
                self._renew_one(claim)

    def _renew_one(self, claim: str) -> None:
        try:
            told = loads(self._transport.ask(('{"op":"renew","claim":' + dumps(claim) + "}").encode()))
        except Exception as error:
            told = {"retriable": True, "message": str(error)}
        with self._lock:
            entry = self._claims.get(claim)
            if entry is None:
                return
            if "code" not in told and "message" not in told:
                entry[1] = told.get("lease_ms", entry[1] * 1000) / 1000
                entry[0] = time.monotonic() + entry[1] / 3
            elif told.get("retriable"):
                entry[0] = time.monotonic() + min(1.0, entry[1] / 10)
            else:  # somebody else may decide now; the commit will tell
                log.warning("a claim cannot be renewed: %s", told.get("message"))
                del self._claims[claim]

    def _forked(self) -> None:
        self._lock = threading.Condition()
        self._claims = {}  # they are the parent's
        self._thread = None


_all: List[Renewals] = []


def forked() -> None:
    """In a child: no thread of the parent is here, and its claims are its own."""
    for renewals in _all:
        renewals._forked()


def place_of(where: Optional[Place], tool: str) -> Place:
    """The place of a call; NoScope if there is none."""
    if where is None:
        raise _errors.NoScope(tool)
    return where
