"""Calls happen once: the decorator, the block and the ledger's methods, on every kind of ledger."""

import dataclasses
import threading
import time
from typing import List, Optional

import pytest

import semel


class Odd(Exception):
    pass


def test_a_call_runs_once(ledger, scope):
    calls = []

    @semel.once
    def t_charge(order, amount=1000, *, currency="usd"):
        calls.append(order)
        return {"id": f"ch_{len(calls)}"}

    first = t_charge("A-17")
    assert first == {"id": "ch_1"}
    assert t_charge(order="A-17", currency="usd") == t_charge("A-17", 1000) == first
    assert t_charge("A-18") == {"id": "ch_2"}
    assert calls == ["A-17", "A-18"]


def test_another_scope_and_another_step_are_other_actions(ledger, scope):
    calls = []

    @semel.once
    def t_remind(to):
        calls.append(to)
        return len(calls)

    assert [t_remind("ann"), t_remind("ann")] == [1, 1]
    with semel.step(2):
        assert [t_remind("ann"), t_remind("ann")] == [2, 2]
    with semel.step("3"):
        assert t_remind("ann") == 3
    with semel.scope(scope + "/x"):
        assert t_remind("ann") == 4
    assert t_remind("ann") == 1


def test_no_scope_is_loud(ledger):
    @semel.once
    def t_nowhere():
        raise AssertionError

    with pytest.raises(semel.NoScope):
        t_nowhere()
    found = []

    def thread():
        try:
            t_nowhere()
        except semel.NoScope as error:
            found.append(error)

    with semel.scope("x"):
        other = threading.Thread(target=thread)
        other.start()
        other.join()
    assert len(found) == 1


def test_a_scope_of_the_decorator(ledger, scope):
    calls = []

    @semel.once(name="t_scoped", scope=lambda order: f"{scope}/{order}")
    def scoped(order, n):
        calls.append(order)
        return len(calls)

    @semel.once(name="t_fixed", scope=scope + "/fixed")
    def fixed():
        return semel.current().scope

    assert [scoped("a", 1), scoped("a", 1), scoped("b", 1)] == [1, 1, 2]
    assert fixed() == scope + "/fixed"


def test_a_key_of_the_caller(ledger, scope):
    calls = []

    @semel.once(name="t_keyed", key=lambda order: f"order:{order}")
    def keyed(order, note=""):
        calls.append(order)
        return len(calls)

    assert [keyed("a"), keyed("a"), keyed("b")] == [1, 1, 2]
    with pytest.raises(semel.Conflict) as caught:
        keyed("a", note="other")
    assert caught.value.drift == ["/note"]


def test_current(ledger, scope):
    seen = []

    @semel.once
    def t_seen(a):
        effect = semel.current()
        seen.append(effect)
        assert effect.fresh and effect.tool == "t_seen" and effect.scope == scope and effect.args == {"a": 1}
        assert len(effect.key) == 43 and effect.effect.startswith("ef_") and effect.attempt == 1
        assert effect.claim not in repr(effect) and effect.key not in repr(effect)

    t_seen(1)
    t_seen(1)
    assert len(seen) == 1
    with pytest.raises(semel.NoEffect):
        semel.current()


def test_a_failure_may_be_tried_again(ledger, scope):
    calls = []

    @semel.once
    def t_fails(a):
        calls.append(a)
        raise Odd("no luck")

    keys = set()

    @semel.once
    def t_key(a):
        keys.add(semel.current().key)
        raise semel.NotApplied("again")

    for _ in range(2):
        with pytest.raises(Odd, match="no luck"):
            t_fails(1)
        with pytest.raises(semel.NotApplied):
            t_key(1)
    assert calls == [1, 1]


def test_a_failure_is_replayed(ledger, scope):
    calls = []

    @semel.once
    def replays(a):
        calls.append(a)
        raise semel.NotApplied("no such account", value={"account": a})

    with pytest.raises(semel.NotApplied):
        replays(1)
    with pytest.raises(semel.ReplayedError) as caught:
        replays(1)
    error = caught.value
    assert (error.type, error.message, error.value) == (
        "semel._errors.NotApplied", "no such account", {"account": 1})  # fmt: skip
    assert error.effect.startswith("ef_") and "not made again" in error.for_model()
    assert calls == [1]


@pytest.mark.parametrize("error", [semel.Unknown("?"), TimeoutError(), ConnectionResetError(), KeyboardInterrupt()])
def test_what_may_have_been_done_is_in_doubt(ledger, scope, error):
    calls = []

    @semel.once
    def t_doubt(a):
        calls.append(a)
        raise error

    with pytest.raises(type(error)):
        t_doubt(1)
    with pytest.raises(semel.InDoubt) as caught:
        t_doubt(1)
    assert caught.value.code == "IN_DOUBT" and not caught.value.retriable
    assert caught.value.effect in caught.value.for_model()
    ledger.resolve(caught.value.effect, "applied", evidence="seen", value={"ok": True})
    assert t_doubt(1) == {"ok": True}
    assert calls == [1]


def test_an_irreversible_tool_is_in_doubt_unless_it_says_no(ledger, scope):
    @semel.once
    def pay(a):
        raise Odd

    @semel.once(name="pay_no", not_applied=Odd)
    def pay_no(a):
        raise Odd

    with pytest.raises(Odd):
        pay(1)
    with pytest.raises(semel.InDoubt) as caught:
        pay(1)
    with pytest.raises(semel.InDoubt) as blocked:
        pay(2)  # the barrier
    assert blocked.value.blocked_by == caught.value.effect
    with pytest.raises(Odd):
        pay_no(1)
    with pytest.raises(semel.ReplayedError):
        pay_no(1)


def test_partial(ledger, scope):
    @semel.once
    def t_part(a):
        raise semel.Partial({"sent": 1}, "send the rest")

    for _ in range(2):
        with pytest.raises(semel.Partial) as caught:
            t_part(1)
        assert caught.value.value == {"sent": 1} and caught.value.corrective_action == "send the rest"
        assert "send the rest" in caught.value.for_model()
    assert isinstance(caught.value, semel.PartialSuccess)


@dataclasses.dataclass
class Line:
    sku: str
    tags: "tuple[str, ...]"


@dataclasses.dataclass
class Receipt:
    id: int
    lines: List[Line]
    next: "Optional[Receipt]" = None


def test_results_of_every_type(ledger, scope):
    values = [
        None, True, 0, -1, 2**63, 2**70, 1.5, "", "ä\U0001f600\x00\"\\", [], {}, [1, [2, {"a": None}]],
        {"value": 1, "outcome": {"kind": "success"}, "headers": 1, "warning": "x"},
    ]  # fmt: skip

    @semel.once
    def t_any(i):
        return values[i]

    for i, value in enumerate(values):
        assert t_any(i) == value
        again = t_any(i)
        assert again == value and type(again) is type(value)


def test_results_by_their_annotation(ledger, scope):
    @semel.once
    def t_receipt(a) -> Receipt:
        return Receipt(1, [Line("x", ("a", "b"))], Receipt(2, []))

    @semel.once
    def t_receipts(a) -> List[Receipt]:
        return [Receipt(1, [])]

    @semel.once
    def t_bytes(a) -> bytes:
        return b"\x00\xff123"

    for f in (t_receipt, t_receipts, t_bytes):
        assert f(1) == f(1)


def test_pydantic_models(ledger, scope):
    pydantic = pytest.importorskip("pydantic")

    class Model(pydantic.BaseModel):
        id: int
        when: "str" = "now"

    def t_model(a):
        return Model(id=a)

    t_model.__annotations__["return"] = Model
    once = semel.once(t_model)
    assert once(1) == once(1) == Model(id=1)


class Strange:
    def __repr__(self):
        return "<Strange \ud800>"


def test_what_is_not_json_is_recorded_as_done(ledger, scope):
    calls = []
    deep = []
    for _ in range(1000):
        deep = [deep]
    values = [object(), float("nan"), {(1, 2): 3}, Strange(), "\ud800", deep, {1, 2}]

    @semel.once
    def t_strange(i):
        calls.append(i)
        return values[i]

    for i, value in enumerate(values):
        assert t_strange(i) is value
        again = t_strange(i)
        assert isinstance(again, semel.Text) or again == value, again
    assert calls == list(range(len(values)))


def test_a_large_result_is_recorded_as_done(ledger, scope):
    calls = []

    @semel.once
    def t_large(a):
        calls.append(a)
        return "x" * (2 << 20)

    assert len(t_large(1)) == 2 << 20
    try:
        assert isinstance(t_large(1), semel.Text)
    except semel.ResultExpired as error:
        assert "done" in error.message
    assert calls == [1]


def test_blocks(ledger, scope):
    for fresh in (True, False):
        with semel.effect("t_block", {"a": 1}) as e:
            assert e.fresh is fresh
            if e.fresh:
                assert semel.current() is e and len(e.key) == 43
                e.result = {"id": 7}
        assert e.result == {"id": 7}
    with pytest.raises(Odd):
        with semel.effect("t_block", {"a": 2}, unknown=Odd):
            raise Odd
    with pytest.raises(semel.InDoubt):
        with semel.effect("t_block", {"a": 2}):
            raise AssertionError


def test_the_ledgers_own_methods(ledger, scope):
    call = semel.Call("t_own", {"a": 1}, scope=scope)
    begun = ledger.begin(call)
    assert begun.fresh and begun.key and begun.lease > 0
    with pytest.raises(semel.InFlight) as caught:
        ledger.begin(call)
    assert caught.value.retriable and caught.value.retry_after > 0
    ledger.renew(begun, 60)
    assert ledger.commit(begun, {"id": 1})["result"] == "committed"
    assert ledger.commit(begun, {"id": 1})["result"] == "committed"
    again = ledger.begin(call)
    assert not again.fresh and again.value == {"id": 1}
    record = ledger.get(begun.effect)
    assert record.state == "succeeded" and record.value == {"id": 1} and record.tool == "t_own"
    assert [e["what"] for e in ledger.events(begun.effect)][:1] == ["started"]
    assert begun.effect in [r.effect for r in ledger.list(scope=scope, state=["succeeded", "failed"])]
    assert ledger.run(call, lambda effect: 1 / 0) == {"id": 1}
    ledger.forget(begun.effect, "a test")
    assert ledger.run(call, lambda effect: effect.args) == {"a": 1}
    with pytest.raises(semel.NotFound):
        ledger.get(begun.effect[:-1] + ("1" if begun.effect[-1] == "0" else "0"))


def test_failures_by_hand(ledger, scope):
    begun = ledger.begin(semel.Call("t_hand", {"a": 1}))
    ledger.commit(begun, error=ConnectionResetError("gone"))
    with pytest.raises(semel.InDoubt):
        ledger.begin(semel.Call("t_hand", {"a": 1}))
    begun = ledger.begin(semel.Call("replays", {"a": 1}))
    ledger.commit(begun, error="refused", applied="no", status=422)
    again = ledger.begin(semel.Call("replays", {"a": 1}))
    assert again.failed is not None and again.failed.message == "refused"
    with pytest.raises(semel.ReplayedError):
        again.value


def test_waiters_get_the_same(ledger, scope):
    import contextvars

    calls, results = [], []

    @semel.once
    def t_slow(a):
        calls.append(a)
        time.sleep(0.3)
        return {"n": len(calls)}

    threads = [
        threading.Thread(target=lambda c: results.append(c.run(t_slow, 1)), args=(contextvars.copy_context(),))
        for _ in range(16)
    ]
    [t.start() for t in threads]
    results.append(t_slow(1))  # the main thread waits in another way
    [t.join() for t in threads]
    assert results == [{"n": 1}] * 17 and calls == [1]


def test_approvals(ledger, scope):
    told = []
    ledger.core.on_approval = lambda asked: told.append(asked.request)

    @semel.once(wait=0)
    def asked(a):
        return a

    with pytest.raises(semel.AwaitingApproval) as caught:
        asked(1)
    assert caught.value.request.startswith("ap_")
    assert caught.value.request in [r.request for r in ledger.approvals()] and caught.value.request in told
    if ledger.core.transport.embedded:  # one token must not ask and approve
        ledger.approve(caught.value.request)
        assert asked(1) == 1
    with pytest.raises(semel.AwaitingApproval) as caught:
        asked(2)
    if ledger.core.transport.embedded:
        ledger.deny(caught.value.request, "not this one")
        with pytest.raises(semel.Denied):
            asked(2)
    else:
        with pytest.raises(semel.Forbidden):
            ledger.approve(caught.value.request)
    ledger.core.on_approval = None


def test_somebody_is_told_of_an_approval_until_it_works(ledger, scope):
    told = []

    def tell(asked):
        told.append(asked.request)
        if len(told) == 1:
            raise RuntimeError("no network")

    ledger.core.on_approval = tell

    @semel.once(name="asked", wait=0.05)
    def asked(a):
        return a

    for _ in range(3):
        with pytest.raises(semel.AwaitingApproval):
            asked(3)
    ledger.core.on_approval = None
    assert len(told) == 2 and len(set(told)) == 1


def test_refusals_have_types(ledger, scope):
    def call(tool, **args):
        with semel.effect(tool, args, wait=0) as e:
            e.result = 1
        return e

    assert call("capped", a=1).fresh
    with pytest.raises(semel.BudgetExceeded) as caught:
        call("capped", a=2)
    assert not caught.value.retriable and "budget" in caught.value.for_model()
    call("twice", to=scope, a=1)
    with pytest.raises(semel.BudgetExceeded):
        call("twice", to=scope, a=2)
    call("fails", a=1)
    with pytest.raises(semel.AlreadyDone):
        call("fails", a=1)
    call("order", id=1, amount=10)
    with pytest.raises(semel.Conflict):
        call("order", id=1, amount=11)
    with pytest.raises(semel.BadArguments):
        call("order", amount=11)
    ledger.stop(scope=scope, reason="a test")
    with pytest.raises(semel.Stopped):
        call("t_stopped", a=1)
    assert any(s["kind"] == "scope" for s in ledger.stops())
    assert ledger.resume(scope=scope)
    call("t_stopped", a=1)
    with pytest.raises(semel.BadArguments):
        ledger.stop(reason="nothing named")


def test_a_circuit(ledger, scope):
    @semel.once(wait=0)
    def broken(a):
        error = Odd()
        error.status = 503
        raise error

    with pytest.raises(Odd):
        broken(1)
    with pytest.raises(semel.CircuitOpen) as caught:
        broken(2)
    assert caught.value.retriable and caught.value.retry_after > 0
    ledger.resume(tool="broken")


def test_costs(ledger, scope):
    @semel.once
    def t_cost(a):
        semel.current().cost = "0.25"
        semel.current().tokens = 7
        return 1

    t_cost(1)
    total = ledger.spend(by="scope", scope=scope)["total"]
    assert total["spent"] == "0.25" and total["tokens"] == 7
    assert ledger.scope(scope)["executed"] == 1


def test_reads_pass(ledger, scope):
    calls = []

    @semel.once
    def reads(a):
        assert semel.current().claim is None
        calls.append(a)
        return len(calls)

    assert [reads(1), reads(1)] == [1, 2]


def test_a_lease_is_renewed(ledger, scope):
    @semel.once
    def brief(a):
        time.sleep(2.5)
        return 1

    assert brief(1) == 1
    assert brief(1) == 1


def test_warnings_are_told(ledger, scope):
    told = []
    ledger.core.on_warning = told.append
    with semel.effect("capped", {"a": 1}) as e:
        e.result = 1
    ledger.core.on_warning = None
    assert told and "budget" in told[0].lower()


def test_coroutines_by_mistake(ledger, scope):
    async def later():
        pass

    @semel.once
    def t_mistake(a):
        return later()

    with pytest.raises(semel.NotApplied, match="coroutine"):
        t_mistake(1)


def test_a_nested_tool(ledger, scope):
    @semel.once
    def t_inner(a):
        raise semel.Unknown("?")

    @semel.once
    def t_outer(a):
        assert semel.current().tool == "t_outer"
        try:
            return t_inner(a)
        finally:
            assert semel.current().tool == "t_outer"

    with pytest.raises(semel.Unknown):
        t_outer(1)
    with pytest.raises(semel.InDoubt):
        t_outer(1)


def test_tool_is_once_with_a_word(ledger, scope):
    calls = []

    @semel.tool(idempotent=True)
    def t_tool(a):
        calls.append(a)

    t_tool(1)
    t_tool(1)
    assert calls == [1]


def test_a_closed_ledger(ledger, scope):
    @semel.once
    def t_closed(a):
        raise AssertionError

    ledger.close()
    with pytest.raises(semel.LedgerUnavailable):
        t_closed(1)
    ledger.close()


def test_a_commit_of_a_partial_outcome_never_runs_again(ledger):
    call = semel.Call("book", {"seat": 1}, scope=f"partial-{id(object())}")
    begun = ledger.begin(call)
    ledger.commit(begun, error=semel.Partial({"done": 1}, corrective_action="book the rest by hand"))
    with pytest.raises(semel.PartialSuccess):
        ledger.run(call, lambda effect: 1 / 0)


def test_a_block_may_end_in_another_context(ledger):
    import contextvars

    block = semel.effect("book", {"seat": 2}, scope="elsewhere", ledger=ledger)
    found = contextvars.copy_context().run(block.__enter__)
    if found.fresh:
        found.result = {"id": 2}
    contextvars.copy_context().run(block.__exit__, None, None, None)
    assert ledger.run(semel.Call("book", {"seat": 2}, scope="elsewhere"), lambda effect: 1 / 0) == {"id": 2}
