"""Keys are those of the core: equal in the program and in this package, on 10,000 random calls."""

import json
import os
import random
import string
import subprocess

import pytest

import semel
from conftest import program
from semel._json import dumps

CALLS = int(os.environ.get("SEMEL_KEYS", "10000"))


def value(r: random.Random, depth: int = 0):
    kind = r.randrange(12 if depth < 3 else 9)
    if kind == 0:
        return None
    if kind == 1:
        return r.choice((True, False))
    if kind == 2:
        return r.randrange(-1000, 1000)
    if kind == 3:
        return r.randrange(-(2**80), 2**80)
    if kind == 4:
        return r.choice((2**53, 2**53 + 1, -(2**63), 10**21, 10**22 + 1, 0))
    if kind == 5:
        return r.uniform(-1e6, 1e6)
    if kind == 6:
        return r.choice((0.1, 1e-7, 1.5e300, -0.0, 5e-324, 1e16, 123456789.123, 1.0, 1e21, 1e22))
    if kind == 7:
        return "".join(r.choice("aZ0 \"\\/\n\t\x00\x7f\u00e9\u20ac\u2028\ufffd\U0001f600") for _ in range(r.randrange(8)))
    if kind == 8:
        return "".join(r.choices(string.ascii_letters, k=r.randrange(30)))
    if kind == 9:
        return [value(r, depth + 1) for _ in range(r.randrange(4))]
    return {f"{r.choice(string.ascii_letters)}{r.choice(['', 'é', '😀'])}{i}": value(r, depth + 1)
            for i in range(r.randrange(4))}  # fmt: skip


def calls():
    r = random.Random(17)
    for i in range(CALLS):
        args = [value(r) for _ in range(r.randrange(1, 4))]
        yield i, r.choice((None, "1", "42", "é")), args


def by_program(batch) -> "list[str]":
    """What `semel key` says, one program for each line of a batch."""
    keys = []
    for scope, step, args in batch:
        command = [program(), "key", "--scope", scope, "--tool", "t_key", "--args", dumps(args), "--json"]
        if step is not None:
            command += ["--step", step]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 0, done.stderr
        keys.append(json.loads(done.stdout)["key"])
    return keys


def test_keys_equal_those_of_the_program(local):
    def f(a, b=2.5, c="default", **rest): ...

    seen = {}

    @semel.once
    def t_key(a, b=2.5, c="default"):
        return semel.current().effect

    sampled = []
    for i, step, given in calls():
        scope = f"tenant/agent/{i}"
        names = dict(zip("abc", given))
        full = {"a": given[0], "b": names.get("b", 2.5), "c": names.get("c", "default")}
        key = local.key(semel.Call("t_key", full, scope=scope, step=step))["key"]
        assert key not in seen
        seen[key] = i
        # The decorator, spelt with keywords or not: its effect has this key.
        with semel.scope(scope):
            with semel.step(step) if step is not None else semel.scope(scope):
                effect = t_key(*given) if i % 2 else t_key(**names)
        assert local.begin(semel.Call("t_key", full, scope=scope, step=step)).effect == effect
        if i % 20 == 0:
            sampled.append((scope, step, full, key))
    assert len(seen) == CALLS
    told = by_program([(scope, step, full) for scope, step, full, _ in sampled])
    assert told == [key for _, _, _, key in sampled]


def test_what_is_equal_and_what_is_not(local):
    def key(**args):
        return local.key(semel.Call("t_key", args, scope="s"))["key"]

    assert key(a=1) == key(a=1.0)
    assert key(a=-0.0) == key(a=0)
    assert key(a=10**21) == key(a=1e21)
    assert key(a=2**53) != key(a=2**53 + 1)
    assert key(a="é") != key(a="e\u0301")
    assert key(a=True) != key(a=1)
    assert key(a=(1, 2)) == key(a=[1, 2])
