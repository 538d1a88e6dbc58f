"""Scopes and steps."""

import asyncio

import pytest

import semel
from semel._scope import place


def where():
    here = place.get()
    return None if here is None else (here.scope, here.step)


def test_scopes_nest_and_end():
    assert where() is None
    with semel.scope("a"):
        assert where() == ("a", None)
        with semel.step(1):
            assert where() == ("a", "1")
            with semel.scope("b"):
                assert where() == ("b", None)
            with semel.step("two"):
                assert where() == ("a", "two")
            assert where() == ("a", "1")
        assert where() == ("a", None)
    assert where() is None


def test_they_end_with_an_exception():
    with pytest.raises(ValueError):
        with semel.scope("a"), semel.step(1):
            raise ValueError
    assert where() is None


def test_one_object_is_entered_again():
    one = semel.scope("a")
    with one, semel.scope("b"), one:
        assert where() == ("a", None)
    assert where() is None

    async def task(name):
        async with one:
            await asyncio.sleep(0.01)
            with semel.step(name):
                await asyncio.sleep(0.01)
                assert where() == ("a", str(name))
            return where()

    async def main():
        return await asyncio.gather(*(task(i) for i in range(5)))

    assert asyncio.run(main()) == [("a", None)] * 5


def test_decorators():
    @semel.scope("a")
    def f():
        return where()

    @semel.scope("b")
    async def g():
        await asyncio.sleep(0)
        return where()

    assert f() == ("a", None) and asyncio.run(g()) == ("b", None) and where() is None


def test_what_is_refused():
    with pytest.raises(semel.SemelError):
        with semel.step(1):
            pass
    for wrong in (None, 1, b"x"):
        with pytest.raises(TypeError):
            semel.scope(wrong)
    for wrong in (None, 1.5, True):
        with pytest.raises(TypeError):
            semel.step(wrong)


def test_errors_survive_pickling():
    import pickle

    for error in (
        semel.NoScope("x"), semel.InDoubt({"code": "IN_DOUBT", "effect": "ef_1", "retry_after_ms": 5}),
        semel.ReplayedError("ValueError", "m", [1], "ef_1"), semel.PartialSuccess({"outcome": {"value": 1}}),
        semel.Unrecorded({"code": "LEDGER_UNAVAILABLE"}, "m", result=5), semel.NotApplied("m"),
    ):  # fmt: skip
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == str(error)
        assert again.for_model() == error.for_model()
