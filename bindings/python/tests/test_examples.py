"""The examples and the snippets of the manual run, and print what they say."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from conftest import root

examples = root / "examples" / "python"
pages = [root / "docs" / "python.md", root / "docs" / "from-agent-ledger.md"]
pytestmark = pytest.mark.skipif(not examples.exists(), reason="the examples are not in an sdist")


def run(path, *args, **more):
    return subprocess.run(
        [sys.executable, str(path), *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path)), **more),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["from_agent_ledger", "one_keyword", "guards"])
def test_an_example_prints_what_it_says(name):
    path = examples / f"{name}.py"
    done = run(path)
    assert done.returncode == 0, done.stderr
    said = path.read_text().split("# Output:\n")[1]
    assert done.stdout == "".join(line[2:] + "\n" for line in said.splitlines())


def test_the_quick_start_survives_kill_9(tmp_path):
    more = {"SEMEL_LEDGER": f"sqlite:{tmp_path}/quick.db"}
    path = examples / "quickstart.py"
    killed = run(path, **more)
    assert killed.returncode == -9 and "charging 1000 for A-17" in killed.stdout
    doubt = run(path, **more)
    assert doubt.returncode == 0 and doubt.stdout.startswith("in doubt: "), doubt.stderr
    assert run(path, "ch_1", **more).stdout.endswith("receipt: {'id': 'ch_1'}\n")
    assert run(path, **more).stdout == "receipt: {'id': 'ch_1'}\n"


@pytest.mark.parametrize("page", pages, ids=lambda p: p.name)
def test_the_snippets_of_a_page_are_one_program(page, tmp_path):
    snippets = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.M | re.S)
    assert snippets
    program = tmp_path / "page.py"
    program.write_text("".join(snippets))
    done = run(program, SEMEL_LEDGER="memory:")
    assert done.returncode == 0, done.stderr
