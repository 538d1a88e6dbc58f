"""What a ledger answers with, and what it is asked with."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any, Dict, List, Optional, Union

from ._errors import ReplayedError, SemelError

__all__ = ["Begun", "Call", "Effect", "Page", "Record", "Since"]

#: A time, or how long ago: a datetime, a timedelta, or a text such as "2h" or "2026-03-01T12:00:00Z".
Since = Union[str, datetime.datetime, datetime.timedelta]


@dataclasses.dataclass(frozen=True)
class Call:
    """What somebody wants done: a tool and its arguments, within a scope.

    ``key`` is the caller's own key for the action; ``after`` the handle of the effect that a deliberate
    repeat comes after. Without ``scope`` and ``step`` those of ``semel.scope`` and ``semel.step`` are taken.
    """

    tool: str
    args: Any = dataclasses.field(default_factory=dict)
    scope: Optional[str] = None
    step: Union[int, str, None] = None
    key: Optional[str] = None
    after: Optional[str] = None


class Effect:
    """The effect that a running tool executes: what :func:`semel.current` gives, and ``as e`` of a block.

    ``key`` is the downstream key: pass it to whatever takes an idempotency key. It is the same for every
    retry of this action, and no secret. Set ``cost``, ``tokens`` or ``status`` to say what the call took
    and which HTTP status it ended with; they are recorded with its outcome.
    """

    __slots__ = (
        "answer", "_key", "args", "attempt", "claim", "cost", "effect", "fresh", "generation", "headers",
        "lease", "repeat_of", "result", "scope", "status", "step", "tool", "tokens", "warning",
    )  # fmt: skip

    def __init__(
        self,
        answer: Dict[str, Any],
        tool: str,
        scope: str,
        step: Optional[str],
        args: Any,
        fresh: bool = True,
    ) -> None:
        self.answer = answer
        self.tool = tool
        self.scope = scope
        self.step = step
        #: The arguments, by the names of the function's parameters.
        self.args = args
        #: True: this call executes the effect. False: it is done, and ``result`` is what is recorded.
        self.fresh = fresh
        #: What a block leaves to be recorded, and what a replayed block finds.
        self.result: Any = None
        #: The handle, ``ef_...``; None for a read, of which nothing is recorded.
        self.effect: Optional[str] = answer.get("effect")
        self._key: Optional[str] = answer.get("idempotency_key")
        self.claim: Optional[str] = answer.get("claim")
        self.attempt: int = answer.get("attempt", 0)
        self.generation: int = answer.get("generation", 0)
        #: For how many seconds the claim holds without a renewal. Claims are renewed while a tool runs.
        self.lease: float = answer.get("lease_ms", 0) / 1000
        #: An irreversible effect of the same key that was done long ago.
        self.repeat_of: Optional[str] = answer.get("repeat_of")
        #: A sentence for the model: the run repeats itself, or a budget is nearly used up.
        self.warning: Optional[str] = answer.get("warning")
        self.cost: Any = None
        self.tokens: Optional[int] = None
        self.status: Optional[int] = None
        self.headers: Optional[Dict[str, str]] = None

    @property
    def key(self) -> str:
        """The downstream key. SemelError if there is none: for a read, or when nothing is executed."""
        if self._key is None:
            raise SemelError("there is no downstream key: this is a read, or it is done already")
        return self._key

    def __repr__(self) -> str:  # never the claim
        return f"<semel.Effect {self.effect} {self.tool} attempt {self.attempt}>"


class Begun:
    """The answer of ``begin``: either this caller executes now, or it is done already.

    ::

        begun = ledger.begin(call)
        if not begun.fresh:
            return begun.value
    """

    __slots__ = ("answer", "_error", "_value", "effect", "key", "claim", "fresh", "lease")

    def __init__(
        self, answer: Dict[str, Any], value: Any = None, error: Optional[SemelError] = None
    ) -> None:
        self.answer = answer
        self._value = value
        self._error = error
        #: The handle of the effect; None for a read.
        self.effect: Optional[str] = answer.get("effect")
        #: The downstream key, if ``fresh``.
        self.key: Optional[str] = answer.get("idempotency_key")
        #: What to commit with, if ``fresh``. A secret; None for a read, which has nothing to commit.
        self.claim: Optional[str] = answer.get("claim")
        self.lease: float = answer.get("lease_ms", 0) / 1000
        #: Execute it now, then commit.
        self.fresh: bool = answer.get("verdict") == "execute"

    @property
    def value(self) -> Any:
        """The recorded result. Raises what the recorded outcome is, if that is a failure."""
        if self.fresh:
            raise SemelError("nothing is recorded yet: this caller has to execute it")
        if self._error is not None:
            raise self._error
        return self._value

    @property
    def failed(self) -> Optional[ReplayedError]:
        """The recorded failure, if there is one."""
        return self._error if isinstance(self._error, ReplayedError) else None

    def __repr__(self) -> str:
        return f"<semel.Begun {self.effect} {'fresh' if self.fresh else 'done'}>"


class Record(Dict[str, Any]):
    """What the ledger knows about something: the JSON object of the HTTP API, with names for its usual members."""

    @property
    def effect(self) -> str:
        """The handle ``ef_...``."""
        return str(self["effect"])

    @property
    def state(self) -> str:
        """``running``, ``succeeded``, ``failed``, ``partial``, ``in_doubt``, ``pending_approval``..."""
        return str(self["state"])

    @property
    def version(self) -> int:
        """Grows with every change of the effect; what ``if_version`` of a decision compares."""
        return int(self["version"])

    @property
    def tool(self) -> str:
        """The tool's name."""
        return str(self["tool"])

    @property
    def scope(self) -> str:
        """The scope that it was called in."""
        return str(self["scope"])

    @property
    def request(self) -> Optional[str]:
        """The open approval request ``ap_...``."""
        return self.get("request")

    @property
    def outcome(self) -> Optional[Dict[str, Any]]:
        """How it ended: ``kind``, ``value``, ``applied``..."""
        return self.get("outcome")

    @property
    def value(self) -> Any:
        """The value of the outcome, or None."""
        outcome = self.get("outcome")
        return outcome.get("value") if outcome else None


class Page(List[Record]):
    """Some items of a list. There are more as long as there is a ``cursor``."""

    def __init__(self, answer: Dict[str, Any]) -> None:
        super().__init__(Record(item) for item in answer.get("items", ()))
        #: What to continue with; None at the end.
        self.cursor: Optional[str] = answer.get("cursor")
        #: The other members of the answer.
        self.answer = answer
