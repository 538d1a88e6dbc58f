"""What the tests share: a ledger of each kind, a gateway, and TAP.

The ledgers are the library's (``SEMEL_LIBRARY``, or the one in the package) and a gateway's, started here
(``SEMEL_BIN``). A test that has the fixture ``ledger`` runs with each of them.
"""

import contextlib
import itertools
import os
import pathlib
import subprocess
import time
import urllib.request

import pytest

import semel

here = pathlib.Path(__file__).resolve().parent
root = here.parent.parent.parent
contract = here / "tools.yaml"
numbers = itertools.count(1)


def program() -> str:
    return os.environ.get("SEMEL_BIN") or str(root / "build" / "semel")


class Gateway:
    """`semel serve` on a port of its own."""

    def __init__(self, folder: pathlib.Path, *options: str) -> None:
        self.folder = folder
        self.tokens = folder / "tokens.json"
        self.log = open(folder / "gateway.log", "w+")
        self.token = self.new_token("tests")
        self.options = options
        self.address = "127.0.0.1:0"
        self.start()

    def new_token(self, name: str, role: str = "admin", *more: str) -> str:
        done = subprocess.run(
            [program(), "token", "create", "--role", role, "--name", name, "--tokens", str(self.tokens), *more],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
        )  # fmt: skip
        return done.stdout.strip().splitlines()[-1]

    def start(self) -> None:
        self.log.seek(0, 2)
        at = self.log.tell()
        self.process = subprocess.Popen(
            [program(), "serve", "--listen", self.address, "--ledger", f"sqlite:{self.folder}/gateway.db",
             "--contract", str(contract), "--tokens", str(self.tokens), *self.options],
            stdout=self.log, stderr=self.log,
        )  # fmt: skip
        for _ in range(600):
            text = pathlib.Path(self.log.name).read_text()[at:]
            if "address=http://" in text:
                self.url = text.split("address=", 1)[1].split()[0]
                self.address = self.url[len("http://") :]
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(self.url + "/readyz", timeout=5).read()
                    return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError("the gateway did not start: " + pathlib.Path(self.log.name).read_text())

    def stop(self, kill: bool = False) -> None:
        self.process.kill() if kill else self.process.terminate()
        self.process.wait(30)


@pytest.fixture(scope="session", autouse=True)
def _state(tmp_path_factory):
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    os.environ.pop("SEMEL_LEDGER", None)
    os.environ.pop("SEMEL_TOKEN", None)


@pytest.fixture(scope="session")
def gateway(_state, tmp_path_factory):
    one = Gateway(tmp_path_factory.mktemp("gateway"))
    yield one
    one.stop()


@pytest.fixture(scope="session")
def file_url(_state, tmp_path_factory):
    return f"sqlite:{tmp_path_factory.mktemp('ledger')}/ledger.db"


@pytest.fixture(params=["memory", "sqlite", "http"])
def ledger(request, tmp_path):
    """A ledger of each kind, and the default of the process while the test runs."""
    if request.param == "http":
        gateway = request.getfixturevalue("gateway")
        one = semel.open(gateway.url, token=gateway.token, wait=10)
    elif request.param == "sqlite":
        one = semel.open(request.getfixturevalue("file_url"), contract=contract, wait=10)
    else:
        one = semel.open("memory:", contract=contract, wait=10)
    before = semel.use(one)
    yield one
    semel.use(before)
    one.close()


@pytest.fixture
def local(tmp_path, request):
    """A ledger that this process opens, for what a gateway does not have."""
    one = semel.open("memory:", contract=contract, wait=10)
    before = semel.use(one)
    yield one
    semel.use(before)
    one.close()


@pytest.fixture
def scope():
    """A scope that no other test has."""
    name = f"tests/python/{os.getpid()}-{next(numbers)}"
    with semel.scope(name):
        yield name


# ---- TAP


def pytest_addoption(parser):
    parser.addoption("--tap", action="store_true", help="print TAP")


class Tap:
    def __init__(self) -> None:
        self.count = 0

    def say(self, word: str, name: str, more: str = "") -> None:
        self.count += 1
        print(f"{word} {self.count} - {name}{more}", flush=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report):
        name = report.nodeid.replace("#", "")
        if report.when == "call" and report.passed:
            self.say("ok", name)
        elif report.failed:
            self.say("not ok", name if report.when == "call" else f"{name} ({report.when})")
            for line in str(report.longrepr).splitlines()[-60:]:
                print(f"# {line}")
        elif report.skipped:
            why = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
            self.say("ok", name, f" # SKIP {why}")

    def pytest_collectreport(self, report):
        if report.failed:
            self.say("not ok", f"collecting {report.nodeid}")
            for line in str(report.longrepr).splitlines()[-40:]:
                print(f"# {line}")

    def pytest_sessionfinish(self):
        print(f"1..{self.count}", flush=True)


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    if config.getoption("--tap"):
        reporter = config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None:
            config.pluginmanager.unregister(reporter)
        config.pluginmanager.register(Tap(), "tap")
