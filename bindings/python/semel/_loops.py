"""Guards without a ledger of yours: loops and budgets in one process.

Both ask the core, in a ledger in memory that all of them share and that is gone with the process.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import threading
from types import TracebackType
from typing import Any, Dict, Optional, Type, Union

from . import _ops
from ._engine import Core, Terms
from ._errors import LoopDetected
from ._flat import Flat
from ._json import dumps, loads
from ._ledger import answered, call_text
from ._scope import Place
from ._values import Effect

__all__ = ["Budget", "LoopDetector", "Match", "Spending"]

_lock = threading.Lock()
_flat: Optional[Flat] = None
_pid = 0
_numbers = itertools.count(1)


def _memory() -> Flat:
    """The core, with a ledger in memory. A child of a fork has one of its own."""
    global _flat, _pid
    with _lock:
        if _flat is None or _pid != os.getpid():
            _flat = Flat({"url": "memory:"})
            _pid = os.getpid()
        return _flat


@dataclasses.dataclass(frozen=True)
class Match:
    """A loop that was found."""

    #: ``repeat`` (one call) or ``cycle`` (calls that take turns).
    detector: str
    #: Of how many calls.
    period: int
    #: How often they were made.
    count: int


class LoopDetector:
    """Finds an agent that repeats itself: the same call again and again, or calls that take turns.

    ::

        detector = semel.LoopDetector(repeats=3, max_cycle=2)
        match = detector.record("send_email", {"to": "ann"}, result="no such user")
        if match:
            print(f"{match.detector}: {match.count} times")

    One is for one run. Tools of a ledger need none: there the contract's ``loop`` is on by default.
    """

    def __init__(self, repeats: int = 3, max_cycle: int = 2) -> None:
        self._options = {"repeats": repeats, "max_cycle": max_cycle}
        self._lock = threading.Lock()
        self._flat = _memory()
        self._loop = self._new()

    def _new(self) -> Any:
        return answered(loads(self._flat.ask(_ops.request("loop_new", **self._options))))["loop"]

    def record(self, tool: str, args: Any = None, result: Any = None) -> Optional[Match]:
        """Adds a call and what it returned; the loop that this completes, or None.

        JSON is compared by value. Without ``result`` the calls alone are compared.
        """
        told = answered(loads(self._flat.ask(_ops.request(
            "loop_add", loop=self._loop, tool=tool, args=args, result=result
        ))))  # fmt: skip
        if not told.get("looping"):
            return None
        return Match(str(told["detector"]), int(told["period"]), int(told["count"]))

    def check(self, tool: str, args: Any = None, result: Any = None) -> None:
        """The same, and raises :class:`semel.LoopDetected` instead of giving the match."""
        match = self.record(tool, args, result)
        if match is not None:
            raise LoopDetected({
                "code": "LOOP_DETECTED",
                "message": f"The same {'call was' if match.period == 1 else 'calls were'} made {match.count} times.",
                "corrective_action": "Use the result you have, change the arguments, or stop.",
                "retriable": False,
                "detector": match.detector,
                "period": match.period,
                "count": match.count,
            })  # fmt: skip

    def reset(self) -> None:
        """Forgets all calls."""
        with self._lock:
            old, self._loop = self._loop, self._new()
            self._flat.ask(_ops.request("loop_free", loop=old))

    def __del__(self) -> None:
        try:
            self._flat.ask(_ops.request("loop_free", loop=self._loop))
        except Exception:  # the process ends, or it was not made
            pass


class Budget:
    """A cap on calls, cost and tokens that no number of threads passes.

    ::

        budget = semel.Budget(cost="5.00", calls=100)
        with budget.spend(cost="0.05") as spent:    # reserved; BudgetExceeded if it does not fit
            answer = model(...)
            spent.cost = answer.cost                # what it really cost

    Tools of a ledger need none: there the contract's ``budget`` is kept for all processes.
    """

    def __init__(
        self,
        *,
        calls: Optional[int] = None,
        cost: Union[None, str, float] = None,
        tokens: Optional[int] = None,
    ) -> None:
        caps: Dict[str, Any] = {"per": "run", "soft": "off"}
        caps.update((k, v) for k, v in (("calls", calls), ("cost", cost), ("tokens", tokens)) if v is not None)
        if len(caps) == 2:
            raise TypeError("a budget has calls, cost or tokens")
        contract = {
            "version": 1,
            "defaults": {"budget": caps},
            "tools": {"spend": {"class": "write", "key": "unique", "loop": "off"}},
        }
        self._core = Core(Flat({"url": "memory:", "contract": dumps(contract)}))
        self._place = Place("budget/budget/budget", None)
        self._terms: Dict[str, Terms] = {}
        self._lock = threading.Lock()

    def spend(self, *, cost: Union[None, str, float] = None, tokens: Optional[int] = None) -> "Spending":
        """Reserves one call, a cost and tokens for the time of a block, and settles them at its end.

        If the block raises :class:`semel.NotApplied`, all of it is released.
        """
        return Spending(self, cost, tokens)

    def charge(self, *, cost: Union[None, str, float] = None, tokens: Optional[int] = None) -> None:
        """Spends it at once. :class:`semel.BudgetExceeded` if it does not fit."""
        with self.spend(cost=cost, tokens=tokens):
            pass

    @property
    def spent(self) -> Dict[str, Any]:
        """What is spent and reserved: the members that ``ledger.spend()`` has in ``total``."""
        told = answered(loads(self._core.transport.ask(_ops.request("spend", by="tool"))))
        total: Dict[str, Any] = told["total"]
        return total

    def close(self) -> None:
        """Lets go of its memory; the end of the process does it too."""
        self._core.close()

    def _tool(self, cost: Union[None, str, float], tokens: Optional[int]) -> Terms:
        name = f"spend {'' if cost is None else cost} {'' if tokens is None else tokens}".strip()
        with self._lock:
            terms = self._terms.get(name)
            if terms is None:
                fields: Dict[str, Any] = {"class": "write", "key": "unique", "loop": "off"}
                if cost is not None:
                    fields["cost"] = cost
                if tokens is not None:
                    fields["tokens"] = tokens
                if name != "spend":
                    answered(
                        loads(self._core.transport.ask(_ops.request("declare", tools={name: fields})))
                    )
                terms = self._terms[name] = Terms(name, 0)
            return terms


class Spending:
    """What one block spends. Set ``cost`` and ``tokens`` to what it really took."""

    def __init__(self, budget: Budget, cost: Union[None, str, float], tokens: Optional[int]) -> None:
        self._budget = budget
        self.cost = cost
        self.tokens = tokens
        self._effect: Optional[Effect] = None

    def __enter__(self) -> "Spending":
        budget = self._budget
        terms = self._terms = budget._tool(self.cost, self.tokens)
        text, where = call_text(terms.name, budget._place, {"n": next(_numbers)})
        told, _ = budget._core.begin(terms, text)
        if told is not None:
            self._effect = Effect(told, terms.name, where.scope, None, {})
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        found, self._effect = self._effect, None
        if found is None:
            return
        found.cost = self.cost
        found.tokens = self.tokens
        if error is None:
            self._budget._core.succeed(self._terms, found, None)
        else:
            self._budget._core.fail(self._terms, found, error)
