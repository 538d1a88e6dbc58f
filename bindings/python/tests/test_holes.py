"""The holes that were proved in another ledger by running it, each tried here.

1 no fencing; 2 retries that put off the takeover; 3 kill -9 that hangs; 4 a row before the approval;
5 approve X, run Y; 6 stuck for ever; 7 done, but recorded as failed; 8 every exception cached; 9 key parts
that collide; 10 eviction of what is live; 11 waiters that overshoot; 12 a notice that is sent once; 13
clocks of workers; 14 replays that write; 15 a trail that is one row; 16 waiting by polling.
"""

import asyncio
import os
import subprocess
import sys
import threading
import time

import pytest

import semel


def lapse(ledger, call):
    """Begins and dies: what is left of a worker that was killed. Gives its claim."""
    begun = ledger.begin(call)
    if ledger.core.renewals is not None:
        ledger.core.renewals.remove(begun.claim)
    return begun


def killed(url, tool, args, scope, contract):
    """A process that begins and is killed."""
    code = (
        "import json, os, sys, semel\n"
        "url, tool, args, scope, contract = sys.argv[1:]\n"
        "begun = semel.open(url, contract=contract).begin(semel.Call(tool, json.loads(args), scope=scope))\n"
        "print(begun.claim, flush=True)\nos.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, url, tool, args, scope, str(contract)],
        stdout=subprocess.PIPE, text=True, env=dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path))),
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture
def file(tmp_path):
    import conftest

    one = semel.open(f"sqlite:{tmp_path}/holes.db", contract=conftest.contract, wait=5)
    before = semel.use(one)
    yield one
    semel.use(before)
    one.close()


def contract():
    import conftest

    return conftest.contract


def test_1_a_late_worker_does_not_commit_over_the_owner(file, scope):
    claim = killed(file.url, "again", "{}", scope, contract())  # naturally idempotent: it runs again
    result = file.run(semel.Call("again", {}), lambda effect: {"by": "second", "fence": effect.answer["fence"]})
    late = file.commit(claim, {"by": "first"})
    assert late["result"] == "late_evidence" and result["fence"] == 2
    assert file.begin(semel.Call("again", {})).value == result


def test_2_3_a_killed_worker_is_known_at_once_however_many_retry(file, scope):
    killed(file.url, "pay", "{}", scope, contract())
    begin = time.monotonic()
    for _ in range(5):
        with pytest.raises(semel.InDoubt):
            file.run(semel.Call("pay", {}), lambda effect: 1, wait=30)
    assert time.monotonic() - begin < 5


def test_4_nothing_runs_before_it_is_approved(file, scope):
    killed(file.url, "asked", '{"a":1}', scope, contract())  # asks, and dies
    with pytest.raises(semel.AwaitingApproval):
        file.run(semel.Call("asked", {"a": 1}), lambda effect: 1, wait=0)


def test_5_what_was_approved_is_what_runs(file, scope):
    file.declare("transfer", class_="write", key=["id"], approval=True)
    with pytest.raises(semel.AwaitingApproval) as ten:
        file.begin(semel.Call("transfer", {"id": 1, "amount": 10}))
    file.approve(ten.value.request)
    with pytest.raises(semel.AwaitingApproval) as many:
        file.begin(semel.Call("transfer", {"id": 1, "amount": 99999}))
    assert many.value.request != ten.value.request
    file.approve(many.value.request)
    assert file.run(semel.Call("transfer", {"id": 1, "amount": 99999}), lambda e: e.args["amount"]) == 99999


@pytest.mark.parametrize(
    "error", [semel.InFlight({"code": "RETRY_IN_FLIGHT"}), semel.SemelError("x"), ValueError(object()),
              asyncio.CancelledError(), Exception("\ud800"), Exception({1: float("nan")})]
)  # fmt: skip
def test_6_no_exception_leaves_a_call_stuck(file, scope, error):
    def tool(effect):
        raise error

    with pytest.raises(type(error)):
        file.run(semel.Call("t_stuck", {}), tool)
    try:
        assert file.run(semel.Call("t_stuck", {}), lambda e: 1, wait=0) == 1
    except semel.InDoubt as doubt:
        file.resolve(doubt.effect, "not_applied", evidence="a test")
        assert file.run(semel.Call("t_stuck", {}), lambda e: 1) == 1


def test_7_a_result_that_is_not_json_was_done(file, scope):
    import datetime

    for i, value in enumerate([datetime.datetime(2026, 1, 1), float("nan"), "a\x00b", object()]):
        call = semel.Call("t_json", {"i": i})
        file.run(call, lambda effect: value)
        record = file.list(tool="t_json", scope=scope)[0]
        assert record.state == "succeeded"
        file.run(call, lambda effect: 1 / 0)


def test_8_failures_say_whether_they_may_be_retried(file, scope):
    calls = []

    def tool(effect):
        calls.append(1)
        raise semel.NotApplied("busy") if len(calls) == 1 else semel.Unknown("gone")

    for kind in (semel.NotApplied, semel.Unknown, semel.InDoubt, semel.InDoubt):
        with pytest.raises(kind):
            file.run(semel.Call("t_retry", {}), tool)
    assert len(calls) == 2


def test_9_parts_of_keys_do_not_run_into_each_other(file):
    pairs = [("tenant1|x", "y"), ("tenant1", "x|y"), ("tenant1", "x"), ("tenant1x", ""), ("tenant1", "x\x1fy")]
    keys = {file.key(semel.Call("t", {"a": b}, scope=a, step=b or None))["key"] for a, b in pairs if "\x1f" not in b}
    assert len(keys) == len(pairs) - 1
    with pytest.raises(semel.BadArguments):  # control characters are refused
        file.key(semel.Call("t\x00", {}, scope="a"))


def test_10_what_is_live_is_never_evicted(scope):
    ledger = semel.open("memory:", contract=contract(), cache_bytes=65536)
    held = ledger.begin(semel.Call("t_live", {}))
    for i in range(3000):
        ledger.run(semel.Call("t_fill", {"i": i}), lambda effect: "x" * 1000)
    with pytest.raises(semel.InFlight):
        ledger.begin(semel.Call("t_live", {}))
    ledger.commit(held, 1)
    assert ledger.run(semel.Call("t_fill", {"i": 0}), lambda effect: 1 / 0) == "x" * 1000
    ledger.close()


def test_11_waiters_keep_their_time(file, scope):
    file.begin(semel.Call("t_wait", {}))
    for wait in (0.0, 0.3, 1.0):
        begin = time.monotonic()
        with pytest.raises(semel.InFlight):
            file.run(semel.Call("t_wait", {}), lambda effect: 1, wait=wait)
        assert wait - 0.01 <= time.monotonic() - begin < wait + 0.5


def test_12_a_notice_that_failed_is_sent_again(file, scope):
    told = []

    def tell(asked):
        told.append(asked.request)
        if len(told) == 1:
            raise ConnectionError

    file.core.on_approval = tell
    for _ in range(3):
        with pytest.raises(semel.AwaitingApproval):
            file.run(semel.Call("asked", {"a": 12}), lambda effect: 1, wait=0.01)
    assert len(told) == 2


def test_13_a_long_tool_keeps_its_claim(file, scope):
    def tool(effect):
        time.sleep(2.5)  # the lease is 1 s
        with pytest.raises(semel.InFlight):
            file.begin(semel.Call("brief", {}))
        return 1

    assert file.run(semel.Call("brief", {}), tool) == 1


def test_14_replays_write_nothing_on_their_path_and_lists_are_bounded(file, scope):
    file.run(semel.Call("t_replay", {}), lambda effect: 1)
    seq = file.stats()["commits"]
    version = file.list(scope=scope)[0].version
    for _ in range(100):
        file.run(semel.Call("t_replay", {}), lambda effect: 1)
    assert file.stats()["commits"] == seq and file.list(scope=scope)[0].version == version
    for i in range(60):
        file.run(semel.Call("t_list", {"i": i}), lambda effect: 1)
    page = file.list(scope=scope)
    assert len(page) == 50 and page.cursor
    assert len(file.list(scope=scope, cursor=page.cursor)) == 11


def test_15_the_trail_has_every_attempt_and_verifies(file, scope):
    call = semel.Call("t_trail", {})
    with pytest.raises(semel.NotApplied):
        file.run(call, lambda effect: (_ for _ in ()).throw(semel.NotApplied("x")))
    file.run(call, lambda effect: 1)
    record = file.get(file.list(scope=scope)[0].effect)
    assert len(record["attempts"]) >= 2 and all(e["actor"] for e in record["events"])
    assert not file.verify()["flaws"]


def test_16_waiters_are_woken(file, scope):
    begun = file.begin(semel.Call("t_woken", {}))
    ended = []

    def waits():
        ended.append((file.begin(semel.Call("t_woken", {}, scope=scope), wait=20).value, time.monotonic()))

    threads = [threading.Thread(target=waits) for _ in range(8)]
    [t.start() for t in threads]
    time.sleep(0.5)
    at = time.monotonic()
    file.commit(begun, "done")
    [t.join() for t in threads]
    assert {value for value, _ in ended} == {"done"}
    print(f"# woken after {max(t for _, t in ended) * 1e3 - at * 1e3:.1f} ms at the latest")
    assert max(t for _, t in ended) - at < 0.4
