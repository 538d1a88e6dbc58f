"""Arguments: all spellings of one call are one call."""

import pytest

import semel
from semel._binding import binder


def bound(function, *args, **kwargs):
    return binder(function)(args, kwargs)


def test_positional_keyword_and_defaulted_spellings_are_equal():
    def f(a, b=2, *, c=3): ...

    same = {"a": 1, "b": 2, "c": 3}
    assert bound(f, 1) == bound(f, a=1) == bound(f, 1, 2) == bound(f, b=2, a=1) == bound(f, 1, c=3) == same


@pytest.mark.parametrize(
    "args, kwargs", [((), {}), ((1, 2, 3), {}), ((1,), {"a": 1}), ((), {"a": 1, "z": 1}), ((), {"z": 1})]
)
def test_what_the_call_would_refuse_is_refused(args, kwargs):
    def f(a, b=2): ...

    with pytest.raises(TypeError):
        f(*args, **kwargs)
    with pytest.raises(TypeError):
        binder(f)(args, kwargs)


def test_rest_arguments():
    def f(a, *rest, b=1, **more): ...

    assert bound(f, 1, 2, 3, x=4) == {"a": 1, "rest": (2, 3), "b": 1, "x": 4}


def test_a_keyword_that_is_named_like_a_positional_parameter_is_refused():
    def f(a, /, **more): ...

    assert bound(f, 1, b=2) == {"a": 1, "b": 2}
    with pytest.raises(TypeError, match="'a'"):
        bound(f, 1, a=2)


def test_excluded_parameters_are_not_part_of_a_call():
    def f(client, a): ...

    assert binder(f, ["client"])((object(), 1), {}) == {"a": 1}
    with pytest.raises(TypeError, match="no parameter 'nobody'"):
        binder(f, ["nobody"])


def test_contexts_of_frameworks_are_excluded():
    kind = type("RunContextWrapper", (), {"__module__": "agents.run_context"})

    def f(ctx, a): ...

    f.__annotations__["ctx"] = kind
    assert bound(f, kind(), 1) == {"a": 1}


def test_what_is_not_json_is_named(ledger, scope):
    @semel.once
    def t_client(client, a):
        raise AssertionError

    with pytest.raises(semel.BadArguments, match="'client' is not JSON") as caught:
        t_client(object(), 1)
    assert "exclude=['client']" in caught.value.for_model()
    with pytest.raises(semel.BadArguments):
        t_client(float("nan"), 1)
    with pytest.raises(semel.BadArguments):
        t_client("\ud800", 1)
    deep = []
    for _ in range(100000):
        deep = [deep]
    with pytest.raises(semel.BadArguments):
        t_client(deep, 1)


def test_methods_need_a_word_about_self(ledger, scope):
    class Mailer:
        @semel.once(name="t_method")
        def send(self, to):
            return 1

    with pytest.raises(semel.BadArguments, match="'self'"):
        Mailer().send("ann")


def test_models_and_dates_are_arguments(ledger, scope):
    import dataclasses
    import datetime
    import decimal
    import enum
    import uuid

    class Colour(enum.Enum):
        RED = "red"

    @dataclasses.dataclass
    class Order:
        id: uuid.UUID
        day: datetime.date
        price: decimal.Decimal
        colour: Colour

    calls = []

    @semel.once
    def t_order(order):
        calls.append(order)
        return len(calls)

    order = Order(uuid.UUID(int=1), datetime.date(2026, 1, 2), decimal.Decimal("1.10"), Colour.RED)
    as_json = {"id": str(uuid.UUID(int=1)), "day": "2026-01-02", "price": "1.10", "colour": "red"}
    assert [t_order(order), t_order(order=order), t_order(as_json)] == [1, 1, 1]


@pytest.mark.parametrize("wrong", [lambda: 1, staticmethod(print)])
def test_what_cannot_be_decorated_is_refused(wrong):
    with pytest.raises(TypeError):
        semel.once(wrong)


def test_generators_are_refused():
    with pytest.raises(TypeError, match="generator"):

        @semel.once
        def t_gen():
            yield 1

    with pytest.raises(TypeError, match="generator"):

        @semel.once
        async def t_agen():
            yield 1


def test_unknown_knobs_are_refused():
    with pytest.raises(TypeError, match="'windwo'"):
        semel.once(windwo="1h")(print)
