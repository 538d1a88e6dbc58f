"""What only a ledger of this process has: contracts in code, checkpoints, loops, budgets, the audit trail."""

import datetime
import pathlib
import re

import pytest

import semel


def test_contracts_in_the_code(scope, tmp_path):
    ledger = semel.open(f"sqlite:{tmp_path}/l.db")
    semel.use(ledger)

    @semel.once(
        class_="irreversible", key=["order"], match=["amount"], window=datetime.timedelta(days=2),
        result_window=3600, failures="retry", cost="0.05", budget={"per": "run", "cost": 1},
        limit={"per": "/order", "calls": 3, "window": datetime.timedelta(hours=1)}, loop=False, approval=False,
        breaker={"failures": 3, "cooldown": 30}, compensate={"tool": "refund", "args": {"/id": {"outcome": "/id"}}},
        redact=["card"], resource=None,
    )  # fmt: skip
    def charge(order, amount, note="", card=""):
        return {"id": 1}

    assert charge("A", 10, note="x") == charge("A", 10, note="y", card="4242")
    with pytest.raises(semel.Conflict):
        charge("A", 11)
    listed = {t["name"]: t for t in ledger.tools()}["charge"]
    assert listed["class"] == "irreversible" and listed["key"]["fields"] == ["/order"]
    assert "4242" not in (tmp_path / "l.db").read_bytes().decode("latin-1")

    # Declaring the same again is harmless; another contract for the tool is refused.
    semel.once(name="charge", **{})(charge.__wrapped__)("B", 1)
    with pytest.raises(semel.BadArguments):
        semel.once(name="charge", class_="write")(charge.__wrapped__)("B", 2)
    with pytest.raises(semel.BadArguments):
        semel.once(name="wrong", class_="nonsense")(charge.__wrapped__)("B", 2)
    semel.use(None)
    ledger.close()


def test_a_decorator_without_knobs_takes_the_contract_file(local, scope):
    @semel.once
    def pay(a):
        raise ValueError

    with pytest.raises(ValueError):
        pay(1)
    with pytest.raises(semel.InDoubt):  # irreversible, as the file says
        pay(1)


def test_steps_as_identity(local, scope):
    @semel.once(name="by_step", key="step")
    def tool(a):
        return a

    with pytest.raises(semel.BadArguments):
        tool(1)
    with semel.step(1):
        assert tool(1) == 1
        with pytest.raises(semel.Conflict):
            tool(2)


def test_a_tool_that_is_not_idempotent_runs_each_time(local, scope):
    calls = []

    @semel.tool
    def mint():
        calls.append(1)
        return len(calls)

    assert [mint(), mint()] == [1, 2]


def test_checkpoints(local, scope, tmp_path):
    calls = []

    @semel.once(name="t_checkpoint")
    def tool(a):
        calls.append(a)
        return {"a": a}

    tool(1)
    tool(2)
    lines = local.export(scope)
    assert len(lines) >= 2
    resumed = semel.open(f"sqlite:{tmp_path}/resumed.db")
    told = resumed.import_(lines)
    assert told["added"] == 2
    assert resumed.import_(lines)["added"] == 0
    semel.use(resumed)
    assert [tool(1), tool(2), tool(3)] == [{"a": 1}, {"a": 2}, {"a": 3}]
    assert calls == [1, 2, 3]
    resumed.close()


def test_a_running_effect_comes_back_in_doubt(local, scope, tmp_path):
    local.begin(semel.Call("t_running", {}))
    resumed = semel.open("memory:")
    resumed.import_(local.export(scope))
    with pytest.raises(semel.InDoubt):
        resumed.begin(semel.Call("t_running", {}))
    resumed.close()


def test_loops_are_stopped(scope):
    ledger = semel.open("memory:")
    told = []
    ledger.core.on_warning = told.append

    @semel.once(ledger=ledger)
    def send_email(to):
        return "no such user"

    for _ in range(4):
        assert send_email("ann") == "no such user"
    assert "3 times" in told[0]
    with pytest.raises(semel.LoopDetected) as caught:
        send_email("ann")
    error = caught.value
    assert (error.detector, error.period, error.count) == ("repeat", 1, 5)
    assert error.value == "no such user" and error.has_value
    assert "Use the result you have" in error.for_model()
    for _ in range(4):
        with pytest.raises(semel.LoopDetected):
            send_email("ann")
    with pytest.raises(semel.LoopDetected):
        send_email("bob")
    ledger.reset(scope, "its prompt is corrected")
    send_email("bob")
    ledger.close()


def test_the_audit_trail(local, scope):
    local.run(semel.Call("t_audit"), lambda e: 1)
    told = local.verify()
    assert not told["flaws"] and told["events"] >= 2
    assert local.stats()["begins"] >= 1


def test_a_budget_alone():
    budget = semel.Budget(cost="0.20", calls=5)
    with budget.spend(cost="0.10") as spent:
        spent.cost = "0.05"
    budget.charge(cost="0.10")
    with pytest.raises(semel.BudgetExceeded):
        budget.charge(cost="0.10")
    budget.charge(cost="0.05")
    assert budget.spent["spent"] == "0.2"
    with pytest.raises(semel.BudgetExceeded):
        budget.charge(cost="0.01")
    with pytest.raises(ZeroDivisionError):
        with semel.Budget(calls=1).spend():
            1 / 0
    with pytest.raises(TypeError):
        semel.Budget()


def test_a_budget_is_never_passed_by_threads():
    import threading

    budget = semel.Budget(calls=20)
    done, refused = [], []

    def spend():
        for _ in range(10):
            try:
                budget.charge()
                done.append(1)
            except semel.BudgetExceeded:
                refused.append(1)

    threads = [threading.Thread(target=spend) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(done) == 20 and len(refused) == 60


def test_a_loop_detector_alone():
    detector = semel.LoopDetector(repeats=3, max_cycle=2)
    assert [detector.record("send", {"to": "ann"}, "no") for _ in range(2)] == [None, None]
    assert detector.record("send", {"to": "ann"}, "no") == semel.Match("repeat", 1, 3)
    detector.reset()
    for _ in range(2):
        assert detector.record("a") is None and detector.record("b") is None
    assert detector.record("a") is None
    assert detector.record("b") == semel.Match("cycle", 2, 3)
    with pytest.raises(semel.LoopDetected):
        for _ in range(3):
            detector.check("c")


def test_the_version_is_the_librarys():
    header = pathlib.Path(__file__).resolve().parents[3] / "include/semel/types.h"
    if not header.exists():
        header = pathlib.Path(__file__).resolve().parents[1] / "csrc/include/semel/types.h"
    numbers = re.findall(r"^#define SEMEL_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", header.read_text(), re.M)
    assert semel.__version__ == ".".join(numbers)


def test_one_name_is_a_list_of_one():
    from semel._contract import contract

    assert contract("t", ignore="note")["key"] == {"ignore": ["/note"]}
    assert contract("t", key=["order"], match="amount")["key"] == {"fields": ["/order"], "match": ["/amount"]}
    assert contract("t", resource="path")["resource"] == ["/path"]
