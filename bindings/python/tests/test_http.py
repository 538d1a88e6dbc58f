"""What is different behind a gateway."""

import asyncio
import socket
import threading
import time

import pytest

import semel
from conftest import Gateway


@pytest.fixture
def remote(gateway):
    one = semel.open(gateway.url, token=gateway.token)
    yield one
    one.close()


def test_what_a_gateway_does_not_have(remote, scope):
    for ask in (remote.export, remote.verify, remote.stats, lambda: remote.import_([]), remote.events,
                lambda: remote.find("k" * 43), lambda: remote.key(semel.Call("x"))):  # fmt: skip
        with pytest.raises(semel.NotSupported):
            ask()
    with pytest.raises(semel.NotSupported, match="contract"):
        semel.open("http://127.0.0.1:1", contract={"version": 1, "tools": {}})


def test_knobs_must_be_in_the_gateways_contract(remote, scope):
    def tool(id, amount=0):
        return id

    assert semel.once(ledger=remote, name="order", key=["id"], match=["amount"])(tool)(1) == 1
    with pytest.raises(semel.NotSupported, match="does not list"):
        semel.once(ledger=remote, name="nobody", window="1h")(tool)(1)
    with pytest.raises(semel.NotSupported, match="class is .*irreversible.* here"):
        semel.once(ledger=remote, name="order", class_="irreversible")(tool)(1)
    assert semel.contracts()["tools"]["nobody"] == {"window": "1h"}


def test_two_people_approve(gateway, remote, scope):
    approver = semel.open(gateway.url, token=gateway.new_token("approver", "approver", "--all-scopes"))

    @semel.once(ledger=remote, wait=20)
    def asked(a):
        return a

    def approve():
        for _ in range(200):
            found = [r for r in approver.approvals() if r.scope == scope]
            if found:
                approver.approve(found[0].request, if_version=found[0].version)
                return
            time.sleep(0.02)

    time.sleep(1.1)  # the gateway reads new tokens once a second
    thread = threading.Thread(target=approve)
    thread.start()
    assert asked("http") == "http"
    thread.join()


def test_a_token_that_is_wrong(gateway, scope):
    with pytest.raises(semel.Forbidden) as caught:
        semel.open(gateway.url, token="nonsense").begin(semel.Call("t_x"))
    assert caught.value.code == "UNAUTHENTICATED"
    with pytest.raises(ValueError):
        semel.open("http://user:secret@127.0.0.1:1")
    with pytest.raises(ValueError):
        semel.open(gateway.url, token="a\r\nX: y")


def test_no_gateway_no_effect(scope):
    ledger = semel.open("http://127.0.0.1:1")

    @semel.once(ledger=ledger, name="t_x")
    def tool():
        raise AssertionError

    with pytest.raises(semel.LedgerUnavailable):
        tool()
    with pytest.raises(semel.LedgerUnavailable):
        asyncio.run(ledger.aio.begin(semel.Call("t_x")))


@pytest.mark.parametrize("answer", [b"", b"nonsense", b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{",
                                    b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 5\r\n\r\n<html"])  # fmt: skip
def test_what_is_no_gateway(answer, scope):
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            connection.recv(65536)
            connection.sendall(answer)
            connection.close()

    threading.Thread(target=serve, daemon=True).start()
    ledger = semel.open(f"http://127.0.0.1:{server.getsockname()[1]}")
    with pytest.raises(semel.LedgerUnavailable):
        ledger.begin(semel.Call("t_x"))
    with pytest.raises(semel.LedgerUnavailable):
        asyncio.run(ledger.aio.begin(semel.Call("t_x")))
    server.close()


def test_a_gateway_that_starts_again(tmp_path, scope):
    gateway = Gateway(tmp_path)
    ledger = semel.open(gateway.url, token=gateway.token)
    assert ledger.run(semel.Call("t_x", {"a": 1}), lambda e: 1) == 1

    def tool(effect):
        gateway.stop(kill=True)
        gateway.start()
        return 2

    # The commit finds a dead connection, and then a gateway that is starting.
    assert ledger.run(semel.Call("t_x", {"a": 2}), tool) == 2
    assert ledger.run(semel.Call("t_x", {"a": 2}), tool) == 2

    async def main():
        async def again(effect):
            gateway.stop(kill=True)
            threading.Timer(0.5, gateway.start).start()
            return 3

        call = semel.Call("t_x", {"a": 3})
        assert await ledger.aio.run(call, again) == 3
        assert await ledger.aio.run(call, again) == 3

    asyncio.run(main())
    gateway.stop()


def test_a_result_that_cannot_be_recorded(tmp_path, scope, monkeypatch):
    monkeypatch.setattr("semel._engine.commit_seconds", 0.5)
    gateway = Gateway(tmp_path)
    ledger = semel.open(gateway.url, token=gateway.token)

    def tool(effect):
        gateway.stop(kill=True)
        return {"id": 1}

    with pytest.raises(semel.Unrecorded) as caught:
        ledger.run(semel.Call("t_x"), tool)
    assert caught.value.result == {"id": 1} and not caught.value.retriable
    assert "Do not make this call again" in caught.value.for_model()
