"""What exceptions prove."""

import asyncio
import concurrent.futures
import http.client
import io
import socket
import subprocess
import urllib.error

import pytest

import semel
from semel._judge import Judge, failure_value

judge = Judge()


@pytest.mark.parametrize(
    "error, applied",
    [
        (semel.NotApplied("x"), "no"),
        (semel.Unknown("x"), "unknown"),
        (KeyboardInterrupt(), "unknown"),
        (SystemExit(1), "unknown"),
        (GeneratorExit(), "unknown"),
        (asyncio.CancelledError(), "unknown"),
        (asyncio.TimeoutError(), "unknown"),
        (concurrent.futures.TimeoutError(), "unknown"),
        (TimeoutError(), "unknown"),
        (socket.timeout(), "unknown"),
        (ConnectionRefusedError(), "no"),
        (ConnectionResetError(), "unknown"),
        (BrokenPipeError(), "unknown"),
        (socket.gaierror(-2, "no such name"), "no"),
        (http.client.RemoteDisconnected(), "unknown"),
        (http.client.IncompleteRead(b""), "unknown"),
        (subprocess.TimeoutExpired("x", 1), "unknown"),
        (urllib.error.URLError(ConnectionRefusedError()), "no"),
        (urllib.error.URLError(TimeoutError()), "unknown"),
        (urllib.error.HTTPError("u", 404, "m", None, io.BytesIO()), "no"),
        (urllib.error.HTTPError("u", 429, "m", None, io.BytesIO()), "no"),
        (urllib.error.HTTPError("u", 503, "m", None, io.BytesIO()), "unknown"),
        (ValueError("x"), None),
        (semel.InDoubt({"code": "IN_DOUBT"}), "unknown"),
        (semel.BudgetExceeded({"code": "BUDGET_EXCEEDED"}), None),
    ],
)
def test_the_standard_library(error, applied):
    assert judge(error)[0] == applied


def test_statuses_are_told():
    assert judge(urllib.error.HTTPError("u", 503, "m", None, io.BytesIO())) == ("unknown", 503)


def test_the_lists_of_a_tool_come_first():
    class Odd(TimeoutError): ...

    assert Judge(not_applied=Odd)(Odd())[0] == "no"
    assert Judge(unknown=[ValueError])(ValueError())[0] == "unknown"
    assert Judge(applied=(KeyError,))(KeyError())[0] == "yes"
    with pytest.raises(TypeError):
        Judge(not_applied=["ValueError"])


def test_httpx():
    httpx = pytest.importorskip("httpx")
    request = httpx.Request("POST", "http://x")
    assert judge(httpx.ConnectError("x"))[0] == "no"
    assert judge(httpx.ConnectTimeout("x"))[0] == "no"
    assert judge(httpx.ReadTimeout("x"))[0] == "unknown"
    assert judge(httpx.WriteError("x"))[0] == "unknown"
    assert judge(httpx.RemoteProtocolError("x"))[0] == "unknown"
    for status, applied in ((422, "no"), (500, "unknown")):
        error = httpx.HTTPStatusError("x", request=request, response=httpx.Response(status, request=request))
        assert judge(error) == (applied, status)


def test_requests_and_urllib3():
    requests = pytest.importorskip("requests")
    for url, applied in (("http://127.0.0.1:1/", "no"), ("http://nobody.invalid/", "no")):
        with pytest.raises(requests.exceptions.ConnectionError) as caught:
            requests.post(url, timeout=5)
        assert judge(caught.value)[0] == applied
    assert judge(requests.exceptions.ReadTimeout())[0] == "unknown"
    assert judge(requests.exceptions.ConnectTimeout())[0] == "no"
    server = socket.create_server(("127.0.0.1", 0))
    import threading

    def hang_up():
        connection, _ = server.accept()
        connection.recv(65536)
        connection.close()

    threading.Thread(target=hang_up, daemon=True).start()
    with pytest.raises(requests.exceptions.ConnectionError) as caught:
        requests.post(f"http://127.0.0.1:{server.getsockname()[1]}/", data=b"x", timeout=5)
    assert judge(caught.value)[0] == "unknown"


def test_groups_are_as_bad_as_their_worst():
    group = getattr(__builtins__, "ExceptionGroup", None) or (
        __builtins__.get("ExceptionGroup") if isinstance(__builtins__, dict) else None
    )
    if group is None:
        pytest.skip("this Python has no groups")
    assert judge(group("g", [ValueError(), TimeoutError()]))[0] == "unknown"
    assert judge(group("g", [semel.NotApplied(), ConnectionRefusedError()]))[0] == "no"
    assert judge(group("g", [semel.NotApplied(), ValueError()]))[0] is None


def test_what_is_kept_of_an_exception():
    import json

    class Odd(Exception):
        value = {"a": 1}

        def __str__(self):
            return "\ud800 text"

    kept = json.loads(failure_value(Odd()))
    assert kept["type"].endswith("Odd") and kept["message"] == "\\ud800 text" and kept["value"] == {"a": 1}

    class Silent(Exception):
        def __str__(self):
            raise RuntimeError

    assert json.loads(failure_value(Silent()))["message"] == ""
    assert json.loads(failure_value(ValueError("x"))) == {"type": "ValueError", "message": "x"}


def test_a_wrapper_does_not_hide_a_doubt():
    def wrapped(inner):
        try:
            try:
                raise inner
            except Exception as error:
                raise RuntimeError("sdk") from error
        except RuntimeError as error:
            return error

    assert judge(wrapped(TimeoutError()))[0] == "unknown"
    assert judge(wrapped(ConnectionResetError()))[0] == "unknown"
    # That an inner request was refused proves nothing about the outer one.
    assert judge(wrapped(ConnectionRefusedError()))[0] is None
    assert judge(wrapped(ValueError()))[0] is None


def test_lists_of_a_tool_hold_inside_of_groups_and_causes():
    class Odd(Exception):
        pass

    class Group(Exception):
        def __init__(self, *exceptions):
            self.exceptions = exceptions

    own = Judge(unknown=[Odd])
    assert own(Group(Odd()))[0] == "unknown"
    outer = RuntimeError("sdk")
    outer.__cause__ = Odd()
    assert own(outer)[0] == "unknown"


@pytest.mark.parametrize("status,word", [(200, "unknown"), (303, "unknown"), (307, "no"), (404, "no"), (502, "unknown")])
def test_an_answer_that_is_no_rejection_is_a_doubt(status, word):
    error = Exception("answered")
    error.response = type("Response", (), {"status_code": status})()
    assert judge(error) == (word, status)


def test_a_rejection_after_a_redirect_is_a_doubt():
    error = Exception("answered")
    error.response = type("Response", (), {"status_code": 404, "history": [object()]})()
    assert judge(error) == ("unknown", 404)
