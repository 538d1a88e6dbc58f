"""Semel: tool calls that are safe to retry.

The side effect happens once. Everyone who asks again gets the recorded answer. What nobody can know is in
doubt, and is not tried again.

::

    import semel

    @semel.once
    def charge(order: str, amount: int) -> dict:
        return stripe.PaymentIntent.create(amount=amount, idempotency_key=semel.current().key)

    with semel.scope("order-123"):
        charge("A-17", 1000)      # runs
        charge("A-17", 1000)      # answered from the record, in this process or in any other one

The ledger is a file of the user unless ``semel.use("postgres://...")``, ``semel.open(...)`` or
``SEMEL_LEDGER`` says otherwise. docs/python.md is the manual.
"""

from ._contract import contracts
from ._errors import (
    AlreadyDone,
    ApprovalExpired,
    AwaitingApproval,
    BadArguments,
    BadClaim,
    BudgetExceeded,
    Canceled,
    CircuitOpen,
    Conflict,
    Denied,
    Forbidden,
    IllegalState,
    InDoubt,
    InFlight,
    LedgerUnavailable,
    LimitExceeded,
    LoopDetected,
    NoEffect,
    NoScope,
    NotApplied,
    NotFound,
    NotSupported,
    Partial,
    PartialSuccess,
    Refused,
    ReplayedError,
    ResultExpired,
    SemelError,
    SemelWarning,
    Stopped,
    Unknown,
    UnknownTool,
    Unrecorded,
    UpstreamFailed,
    UpstreamTimeout,
)
from ._ledger import AsyncLedger, Ledger, default, open, open_async, use
from ._loops import Budget, LoopDetector, Match, Spending
from ._once import effect, once, tool
from ._results import Text
from ._scope import current, scope, step
from ._values import Begun, Call, Effect, Page, Record

__version__ = "0.1.0"

__all__ = [
    "AlreadyDone",
    "ApprovalExpired",
    "AsyncLedger",
    "AwaitingApproval",
    "BadArguments",
    "BadClaim",
    "Begun",
    "Budget",
    "BudgetExceeded",
    "Call",
    "Canceled",
    "CircuitOpen",
    "Conflict",
    "Denied",
    "Effect",
    "Forbidden",
    "IllegalState",
    "InDoubt",
    "InFlight",
    "Ledger",
    "LedgerUnavailable",
    "LimitExceeded",
    "LoopDetected",
    "LoopDetector",
    "Match",
    "NoEffect",
    "NoScope",
    "NotApplied",
    "NotFound",
    "NotSupported",
    "Page",
    "Partial",
    "PartialSuccess",
    "Record",
    "Refused",
    "ReplayedError",
    "ResultExpired",
    "SemelError",
    "SemelWarning",
    "Spending",
    "Stopped",
    "Text",
    "Unknown",
    "UnknownTool",
    "Unrecorded",
    "UpstreamFailed",
    "UpstreamTimeout",
    "contracts",
    "current",
    "default",
    "effect",
    "once",
    "open",
    "open_async",
    "scope",
    "step",
    "tool",
    "use",
]
