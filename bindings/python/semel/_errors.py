"""What can go wrong, as types.

Everything that Semel raises is below :class:`SemelError`. A call that was refused raises a child of
:class:`Refused`: nothing ran because of this call. What a tool itself raises passes through unchanged.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Mapping, Optional, Type

__all__ = [
    "AlreadyDone",
    "ApprovalExpired",
    "AwaitingApproval",
    "BadArguments",
    "BadClaim",
    "BudgetExceeded",
    "Canceled",
    "CircuitOpen",
    "Conflict",
    "Denied",
    "Forbidden",
    "IllegalState",
    "InDoubt",
    "InFlight",
    "LedgerUnavailable",
    "LimitExceeded",
    "LoopDetected",
    "NoEffect",
    "NoScope",
    "NotApplied",
    "NotFound",
    "NotSupported",
    "Partial",
    "PartialSuccess",
    "Refused",
    "ReplayedError",
    "ResultExpired",
    "SemelError",
    "SemelWarning",
    "Stopped",
    "Unknown",
    "UnknownTool",
    "Unrecorded",
    "UpstreamFailed",
    "UpstreamTimeout",
]


class SemelError(Exception):
    """The base of everything that Semel raises."""

    def for_model(self) -> str:
        """What a model should read instead of a traceback: what happened, and what to do about it.

        It names effects by their handles and never contains a key.
        """
        return str(self)


class SemelWarning(UserWarning):
    """A sentence for the model that an answer carried, such as "the same call returned the same result"."""


class NoScope(SemelError):
    """A call was made outside of every scope, so nobody knows what it may be a repeat of.

    Write ``with semel.scope("order-123"):`` around the run, or give ``scope=`` to the decorator. Semel
    never makes a scope up: a random one would make every retry a new action.
    """

    def __init__(self, tool: str) -> None:
        super().__init__(
            f"{tool} was called outside of a scope. Write `with semel.scope(\"order-123\"):` around the "
            "run, or give scope= to the decorator. Threads do not inherit a scope: use "
            "contextvars.copy_context().run, or enter the scope in the thread."
        )
        self.tool = tool

    def __reduce__(self) -> Any:
        return type(self), (self.tool,)


class NoEffect(SemelError):
    """:func:`semel.current` was called while no tool runs."""


class NotSupported(SemelError):
    """This kind of ledger cannot do that; the message says which one can."""


# ---- what a tool raises to say what it knows ---------------------------------------------------------


class NotApplied(SemelError):
    """Raise it in a tool to say: this failed, and surely nothing was done.

    The failure is recorded as not applied. Whether an equal call runs again is up to the tool's contract
    (``failures``). ``value`` is kept with it and comes back in :class:`ReplayedError`.
    """

    def __init__(self, message: str = "", value: Any = None) -> None:
        super().__init__(message)
        self.value = value


class Unknown(SemelError):
    """Raise it in a tool to say: this may have been done, and I cannot tell.

    The effect is then in doubt. Nobody runs it again until it is resolved.
    """

    def __init__(self, message: str = "", value: Any = None) -> None:
        super().__init__(message)
        self.value = value


class Partial(SemelError):
    """Raise it in a tool to say: some of it was done and some was not.

    ``value`` says what was done, ``corrective_action`` what is left to do. An equal call never runs
    again; it raises :class:`PartialSuccess`, which is a ``Partial`` too, so one ``except`` catches both.
    """

    corrective_action: Optional[str]

    def __init__(
        self, value: Any = None, corrective_action: Optional[str] = None, message: str = ""
    ) -> None:
        super().__init__(message or "This was done in part.")
        self.value = value
        self.corrective_action = corrective_action

    def for_model(self) -> str:
        return _sentences(str(self), self.corrective_action)


class ReplayedError(SemelError):
    """The same call failed before, and this is its recorded failure. The tool did not run again.

    ``type`` is the name of the exception that was raised then, ``message`` its text, ``value`` what was
    kept with it (if anything was), ``effect`` the handle of the effect.
    """

    def __init__(self, type: str, message: str, value: Any = None, effect: Optional[str] = None) -> None:
        super().__init__(f"{type}: {message}" if message else type)
        self.type = type
        self.message = message
        self.value = value
        self.effect = effect

    def __reduce__(self) -> Any:
        return type(self), (self.type, self.message, self.value, self.effect)

    def for_model(self) -> str:
        return (
            f"This call failed before and was not made again: {self}. "
            "Change the arguments, or tell the user."
        )


# ---- refusals ----------------------------------------------------------------------------------------


class Refused(SemelError):
    """A call was refused: because of this call, nothing ran.

    ============================  ====================================================================
    ``code``                      the code of the HTTP API, such as ``"IN_DOUBT"``
    ``message``                   what happened, in a sentence
    ``corrective_action``         what to do about it, or ``None``
    ``retriable``                 whether the very same call may succeed later
    ``retry_after``               in how many seconds, or ``None``
    ``effect``, ``state``         the effect's handle and state, if there is one
    ``answer``                    the whole answer
    ============================  ====================================================================
    """

    code = ""
    corrective_action: Optional[str]

    def __init__(self, answer: Optional[Mapping[str, Any]] = None, message: str = "") -> None:
        #: The answer of the ledger; a problem as RFC 9457 has it.
        self.answer: Dict[str, Any] = dict(answer or {})
        self.code = str(self.answer.get("code") or type(self).code)
        self.message = message or str(self.answer.get("message") or self.answer.get("detail") or self.code)
        self.corrective_action = self.answer.get("corrective_action")
        self.retriable: bool = bool(self.answer.get("retriable", False))
        after = self.answer.get("retry_after_ms")
        self.retry_after: Optional[float] = None if after is None else after / 1000
        self.effect: Optional[str] = self.answer.get("effect")
        self.state: Optional[str] = self.answer.get("state")
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" if self.code else self.message

    def __reduce__(self) -> Any:
        return type(self), (self.answer, self.message)

    @property
    def has_value(self) -> bool:
        """Whether the refusal carries what is recorded: LOOP_DETECTED does, if the call is settled."""
        outcome = self.answer.get("outcome")
        return isinstance(outcome, dict) and "value" in outcome

    @property
    def value(self) -> Any:
        """The recorded value that the refusal carries, or ``None``."""
        outcome = self.answer.get("outcome")
        return outcome.get("value") if isinstance(outcome, dict) else None

    def for_model(self) -> str:
        text = _sentences(self.message, self.corrective_action)
        if self.effect and self.effect not in text:
            text += f" (effect {self.effect})"
        return text


class InFlight(Refused):
    """The same call is running, and did not end while we waited. Ask again later; it will not run twice."""

    code = "RETRY_IN_FLIGHT"


class AwaitingApproval(Refused):
    """A person has to approve the call first. ``request`` is what to approve."""

    code = "AWAITING_APPROVAL"

    @property
    def request(self) -> Optional[str]:
        """The handle ``ap_...`` of the request, for ``ledger.approve`` and ``ledger.deny``."""
        request = self.answer.get("request")
        return None if request is None else str(request)


class Denied(Refused):
    """A person has denied the call."""

    code = "DENIED"


class ApprovalExpired(Refused):
    """Nobody approved the call in time. The same call asks again."""

    code = "APPROVAL_EXPIRED"


class Canceled(Refused):
    """The call was canceled while it waited."""

    code = "CANCELED"


class Conflict(Refused):
    """The key belongs to a call with other arguments. ``drift`` lists the pointers that differ."""

    code = "KEY_CONFLICT"

    @property
    def drift(self) -> "list[str]":
        """JSON pointers of the arguments that differ."""
        return list(self.answer.get("drift") or [])


class InDoubt(Refused):
    """An earlier attempt may or may not have taken effect. A person or a probe has to find out."""

    code = "IN_DOUBT"

    @property
    def blocked_by(self) -> Optional[str]:
        """The other effect that is in doubt, if it is not this one."""
        other = self.answer.get("blocked_by")
        return None if other is None else str(other)


class ResultExpired(Refused):
    """This was done, and its result is no longer kept or was too large to be."""

    code = "RESULT_EXPIRED"


class AlreadyDone(Refused):
    """This was done already, and the tool's contract says ``on_hit: fail``."""

    code = "ALREADY_DONE"


class PartialSuccess(Refused, Partial):
    """This was done in part. ``value`` says what was done, ``corrective_action`` what is left to do."""

    code = "PARTIAL_SUCCESS"

    def __init__(
        self, answer: Optional[Mapping[str, Any]] = None, message: str = "", decoded: Any = None
    ) -> None:
        Refused.__init__(self, answer, message)
        outcome = self.answer.get("outcome") or {}
        self.decoded = outcome.get("value") if decoded is None else decoded
        self.corrective_action = outcome.get("corrective_action") or self.corrective_action

    @property
    def value(self) -> Any:
        return self.decoded

    @value.setter
    def value(self, value: Any) -> None:
        self.decoded = value

    def __reduce__(self) -> Any:
        return type(self), (self.answer, self.message, self.decoded)

    def for_model(self) -> str:
        text = _sentences(self.message, self.corrective_action)
        if self.decoded is not None:
            text += " What was done: " + json.dumps(self.decoded, default=str)
        return text


class LoopDetected(Refused):
    """The run repeats itself. ``detector`` is ``repeat``, ``cycle`` or ``no_progress``.

    ``period`` says of how many calls, ``count`` how often they were made.
    """

    code = "LOOP_DETECTED"

    @property
    def detector(self) -> str:
        """``repeat``, ``cycle`` or ``no_progress``."""
        return str(self.answer.get("detector", ""))

    @property
    def period(self) -> int:
        """Of how many calls the repeated sequence is."""
        return int(self.answer.get("period", 0))

    @property
    def count(self) -> int:
        """How often it was made."""
        return int(self.answer.get("count", 0))


class BudgetExceeded(Refused):
    """The call does not fit into a budget of its contract. Nothing has been done."""

    code = "BUDGET_EXCEEDED"


class LimitExceeded(BudgetExceeded):
    """The destination of the call was acted on as often as the contract's ``limit`` allows."""


class CircuitOpen(Refused):
    """The tool fails, so it is not called for a while."""

    code = "CIRCUIT_OPEN"


class Stopped(Refused):
    """A person has stopped writes of this scope, of this tool, or all of them."""

    code = "STOPPED"


class LedgerUnavailable(Refused):
    """The ledger cannot be used now, so nothing may run."""

    code = "LEDGER_UNAVAILABLE"


class Unrecorded(LedgerUnavailable):
    """The tool ran, and what became of it could not be recorded. Do not take it for "nothing ran": catch it
    before :class:`Refused`.

    ``result`` is what the tool returned. The effect will be in doubt once its lease is over; equal calls
    do not run.
    """

    def __init__(
        self, answer: Optional[Mapping[str, Any]] = None, message: str = "", result: Any = None
    ) -> None:
        super().__init__(answer, message)
        self.result = result
        self.retriable = False
        self.corrective_action = (
            "Do not make this call again, and do not try another way. A person has to resolve it."
        )

    def __reduce__(self) -> Any:
        return type(self), (self.answer, self.message, self.result)


class BadArguments(Refused):
    """The call or the request is not well formed. The message says what is wrong and where."""

    code = "BAD_ARGUMENTS"


class UnknownTool(Refused):
    """The contract does not allow this tool."""

    code = "UNKNOWN_TOOL"


class UpstreamTimeout(Refused):
    """What became of an earlier attempt is being found out. Ask again later."""

    code = "UPSTREAM_TIMEOUT"


class UpstreamFailed(Refused):
    """The tool could not be reached, or turned the call away: nothing was done."""

    code = "UPSTREAM_FAILED"


class IllegalState(Refused):
    """That cannot be done in the state that the effect is in."""

    code = "ILLEGAL_STATE"


class Forbidden(Refused):
    """Who asks may not do that: the role, the scope or the contract does not allow it."""

    code = "FORBIDDEN"


class BadClaim(Refused):
    """The claim is not, or no longer, the one that may do this."""

    code = "BAD_CLAIM"


class NotFound(Refused):
    """There is no such effect, scope or stop."""

    code = "NOT_FOUND"


_types: Dict[str, Type[Refused]] = {
    t.code: t
    for t in (
        InFlight, AwaitingApproval, Denied, ApprovalExpired, Canceled, Conflict, InDoubt, ResultExpired,
        AlreadyDone, PartialSuccess, LoopDetected, BudgetExceeded, CircuitOpen, Stopped,
        LedgerUnavailable, BadArguments, UnknownTool, UpstreamTimeout, UpstreamFailed, IllegalState,
        Forbidden, BadClaim, NotFound,
    )
}  # fmt: skip
_types.update(
    NOT_ALLOWED=Forbidden,
    UNAUTHENTICATED=Forbidden,
    NO_ROUTE=NotFound,
    TOO_LARGE=BadArguments,
    OVERLOADED=LedgerUnavailable,
    DRAINING=LedgerUnavailable,
    MISCONFIGURED=LedgerUnavailable,
)


def refusal(answer: Mapping[str, Any]) -> Refused:
    """The exception for an answer that refuses."""
    code = str(answer.get("code", ""))
    found = _types.get(code, Refused)
    if found is BudgetExceeded and "limit" in answer:
        found = LimitExceeded
    return found(answer)


def unavailable(message: str, retry_after: Optional[float] = None) -> LedgerUnavailable:
    """The ledger could not be asked, for a reason that lies on our side of the wire."""
    answer: Dict[str, Any] = {
        "code": "LEDGER_UNAVAILABLE",
        "message": message,
        "retriable": True,
        "corrective_action": "Try again later.",
    }
    if retry_after is not None:
        answer["retry_after_ms"] = int(retry_after * 1000)
    return LedgerUnavailable(answer)


def bad_arguments(message: str, action: str = "Correct the call; nothing has run.") -> BadArguments:
    """The call cannot be written down as JSON."""
    return BadArguments(
        {"code": "BAD_ARGUMENTS", "message": message, "retriable": False, "corrective_action": action}
    )


def _sentences(message: str, action: Optional[str]) -> str:
    return f"{message} {action}" if action and action not in message else message
