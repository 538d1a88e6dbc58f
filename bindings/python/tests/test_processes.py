"""Several processes: kill -9, forks, spawned children, and one key for all of them."""

import asyncio
import multiprocessing
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import semel

here = pathlib.Path(__file__).resolve().parent


def script(text: str, *args: str, **options) -> "subprocess.Popen[str]":
    code = textwrap.dedent(text)
    return subprocess.Popen(
        [sys.executable, "-c", code, *args],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path))), **options,
    )  # fmt: skip


def finished(process) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    return out


@pytest.fixture(params=["sqlite", "http"])
def shared(request, tmp_path):
    """The URL of a ledger that several processes share."""
    if request.param == "http":
        gateway = request.getfixturevalue("gateway")
        os.environ["SEMEL_TOKEN"] = gateway.token
        yield gateway.url
        del os.environ["SEMEL_TOKEN"]
    else:
        yield f"sqlite:{tmp_path}/shared.db"


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_tool_that_is_killed_is_in_doubt_until_somebody_knows(tmp_path, scope, kind):
    url = f"sqlite:{tmp_path}/killed.db"
    process = script(
        """
        import asyncio, os, sys, time, semel
        url, scope, kind = sys.argv[1:]
        semel.use(url)

        @semel.once
        def charge(order):
            print("charged", flush=True)
            time.sleep(60)

        @semel.once(name="charge")
        async def acharge(order):
            print("charged", flush=True)
            await asyncio.sleep(60)

        with semel.scope(scope):
            charge("A-17") if kind == "sync" else asyncio.run(acharge("A-17"))
        """,
        url, scope, kind,
    )  # fmt: skip
    assert process.stdout.readline() == "charged\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()

    @semel.once(ledger=semel.open(url))
    def charge(order):
        raise AssertionError("it ran twice")

    with pytest.raises(semel.InDoubt) as caught:
        charge("A-17")
    assert [e["what"] for e in charge.__semel__.ledger.events(caught.value.effect)] == ["started", "doubted"]
    charge.__semel__.ledger.resolve(
        caught.value.effect, "applied", evidence="the provider shows ch_1", value={"id": "ch_1"}
    )
    assert charge("A-17") == {"id": "ch_1"}


WORKER = """
import asyncio, contextvars, os, sys, threading, semel
url, scope, log, contract = sys.argv[1:]
semel.use(semel.open(url, wait=100, contract=None if url.startswith("http") else contract))

@semel.once(name="t_hammer")
async def hammer(a):
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, b"x")
    os.close(fd)
    await asyncio.sleep(0.3)
    return {"pid": os.getpid()}

results = []
async def main():
    with semel.scope(scope):
        results.extend(await asyncio.gather(*(hammer(1) for _ in range(32))))
threads = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
assert len(results) == 256, len(results)
print({r["pid"] for r in results})
"""


def test_8_processes_8_threads_32_tasks_one_key(shared, tmp_path, scope):
    log = tmp_path / "ran"
    workers = [script(WORKER, shared, scope, str(log), str(here / "tools.yaml")) for _ in range(8)]
    told = {finished(w) for w in workers}
    assert log.read_text() == "x" and len(told) == 1, told


def test_a_child_of_a_fork_goes_on(shared, tmp_path, scope):
    ledger = semel.open(shared, wait=10)
    calls = tmp_path / "calls"

    @semel.once(ledger=ledger, name="t_fork")
    def tool(a):
        with open(calls, "a") as out:
            out.write(f"{a}\n")
        return a

    tool(0)
    asyncio.run(_async_once(ledger))
    read, write = os.pipe()
    children = []
    for _ in range(2):
        children.append(os.fork())
        if children[-1] == 0:
            code = 1
            try:
                ok = [tool(0), tool(1), tool(2)] == [0, 1, 2] and asyncio.run(_async_once(ledger)) == 1
                code = 0 if ok else 2
            except BaseException as error:
                os.write(write, repr(error).encode())
            finally:
                os._exit(code)
    for child in children:
        _, status = os.waitpid(child, 0)
        if status:
            os.write(write, b"?")
            raise AssertionError((status, os.read(read, 1000)))
    assert [tool(0), tool(1), tool(3)] == [0, 1, 3]
    assert sorted(calls.read_text().split()) == ["0", "1", "2", "3"]
    ledger.close()


async def _async_once(ledger):
    @semel.once(ledger=ledger, name="t_fork_async")
    async def tool():
        return 1

    return await tool()


def test_a_child_of_a_fork_knows_what_was_declared(tmp_path, scope):
    ledger = semel.open(f"sqlite:{tmp_path}/declared.db")

    @semel.once(ledger=ledger, name="declared", class_="irreversible")
    def tool(a):
        raise ValueError

    with pytest.raises(ValueError):
        tool(1)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            try:
                tool(1)
            except semel.InDoubt:
                listed = {t["name"]: t["class"] for t in ledger.tools()}
                code = 0 if listed == {"declared": "irreversible"} else 2
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    ledger.close()


def test_a_fork_in_the_middle_of_a_tool(tmp_path, scope):
    """The claim is the parent's. The child is another run of the same program, and its end is not ours."""
    ledger = semel.open(f"sqlite:{tmp_path}/forked.db")

    @semel.once(ledger=ledger, name="t_mid")
    def tool(a):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        return a

    assert tool(1) == 1
    assert ledger.list()[0].state == "succeeded"
    ledger.close()


def test_a_memory_ledger_is_its_processs_own(local, scope):
    @semel.once(name="t_memory")
    def tool(a):
        return a

    tool(1)
    pid = os.fork()
    if pid == 0:
        try:
            tool(1)
        except semel.LedgerUnavailable:
            os._exit(0)
        except BaseException:
            os._exit(2)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    with pytest.raises(TypeError):
        pickle.dumps(local)


def _spawned(ledger, scope):
    with semel.scope(scope):
        begun = ledger.begin(semel.Call("t_spawn", {"a": 1}))
        return begun.fresh, None if begun.fresh else begun.value


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(shared, scope, method):
    ledger = semel.open(shared)
    ledger.run(semel.Call("t_spawn", {"a": 1}), lambda effect: {"n": 1})
    assert pickle.loads(pickle.dumps(ledger)).url == ledger.url
    if shared.startswith("http") and method == "forkserver":
        pytest.skip("its server has the environment of the first test that used it")
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.starmap(_spawned, [(ledger, scope)] * 4) == [(False, {"n": 1})] * 4
    ledger.close()


def test_ctrl_c_ends_a_wait(tmp_path, scope):
    url = f"sqlite:{tmp_path}/waits.db"
    ledger = semel.open(url)
    begun = ledger.begin(semel.Call("t_wait", {}))
    process = script(
        """
        import sys, semel
        url, scope = sys.argv[1:]
        semel.use(semel.open(url, wait=60))
        print("waits", flush=True)
        try:
            with semel.effect("t_wait", scope=scope):
                pass
        except KeyboardInterrupt:
            print("interrupted")
        """,
        url, scope,
    )  # fmt: skip
    assert process.stdout.readline() == "waits\n"
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    assert finished(process) == "interrupted\n" and time.monotonic() - begin < 20
    ledger.commit(begun, 1)
    ledger.close()


def test_ctrl_c_in_a_tool_is_a_doubt(tmp_path, scope):
    url = f"sqlite:{tmp_path}/interrupted.db"
    process = script(
        """
        import sys, time, semel
        url, scope = sys.argv[1:]
        with semel.effect("t_int", scope=scope, ledger=semel.open(url)):
            print("runs", flush=True)
            time.sleep(60)
        """,
        url, scope,
    )  # fmt: skip
    assert process.stdout.readline() == "runs\n"
    process.send_signal(signal.SIGINT)
    process.communicate()
    with semel.open(url) as ledger, pytest.raises(semel.InDoubt):
        ledger.begin(semel.Call("t_int", {}))


def test_the_end_of_the_process_with_threads_inside(tmp_path, scope):
    """Daemon threads that still wait in the library do not crash the end of the process."""
    for _ in range(3):
        process = script(
            """
            import sys, threading, time, semel
            url, scope = sys.argv[1:]
            ledger = semel.open(url, wait=60)
            begun = ledger.begin(semel.Call("t_end", {}, scope=scope + str(time.time_ns())))
            call = semel.Call("t_end", {}, scope=scope + "/held")
            held = ledger.begin(call)
            for _ in range(4):
                threading.Thread(target=lambda: ledger.begin(call, wait=60), daemon=True).start()
            time.sleep(0.3)
            """,
            f"sqlite:{tmp_path}/ends.db", scope + str(time.time_ns()),
        )  # fmt: skip
        assert finished(process) == ""


def test_closing_while_threads_ask(local, scope):
    import contextvars

    @semel.once(name="t_many")
    def tool(i):
        return i

    stopped = []

    def asks():
        try:
            for i in range(10**9):
                tool(i % 50)
        except semel.LedgerUnavailable:
            stopped.append(True)

    threads = [
        threading.Thread(target=lambda c: c.run(asks), args=(contextvars.copy_context(),)) for _ in range(4)
    ]
    [t.start() for t in threads]
    time.sleep(0.5)
    local.close()
    [t.join() for t in threads]
    assert stopped == [True] * 4
