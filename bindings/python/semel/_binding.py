"""Arguments as the parameters that they are for.

Positional, keyword and defaulted spellings of one call give the same mapping, so they have the same key.
"""

from __future__ import annotations

import inspect
import typing
from typing import Any, Callable, Dict, FrozenSet, Iterable, Mapping, Optional, Tuple

__all__ = ["Bind", "binder", "picker"]

Bind = Callable[[Tuple[Any, ...], Dict[str, Any]], Dict[str, Any]]

#: Parameters that frameworks fill in, by the package and the name of their type. They say nothing about
#: what a call does, and change from try to try.
_contexts = {
    "agents": ("RunContextWrapper", "ToolContext"),
    "autogen_core": ("CancellationToken",),
    "fastmcp": ("Context",),
    "google": ("ToolContext", "Context"),
    "langchain": ("ToolRuntime",),
    "langchain_core": ("RunnableConfig", "CallbackManager", "AsyncCallbackManager"),
    "langgraph": ("ToolRuntime", "Runtime", "BaseStore"),
    "llama_index": ("Context",),
    "mcp": ("Context",),
    "pydantic_ai": ("RunContext",),
    "strands": ("ToolContext", "Agent"),
}


def binder(function: Callable[..., Any], exclude: Iterable[str] = ()) -> Bind:
    """What makes the arguments of a call a mapping from names to values. TypeError as the call itself."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    names = tuple(p.name for p in parameters)
    left_out = frozenset(exclude)
    unknown = left_out - set(names)
    if unknown:
        raise TypeError(f"{_name(function)} has no parameter {sorted(unknown)[0]!r} to exclude")
    left_out |= _framework(function, parameters)
    simple = all(p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) for p in parameters)
    bind = _simple(signature) if simple else _any(signature)
    return bind if not left_out else _without(bind, left_out)


def _simple(signature: inspect.Signature) -> Bind:
    parameters = signature.parameters.values()
    names = tuple(signature.parameters)
    every = frozenset(names)
    count = len(names)
    positional = sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}

    def bind(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Dict[str, Any]:
        if not args:
            given = {**defaults, **kwargs}
            if given.keys() == every:
                return given
        n = len(args)
        if n == count and not kwargs and n <= positional:
            return dict(zip(names, args))
        given = dict(defaults)
        given.update(zip(names, args))
        given.update(kwargs)
        if n > positional or len(given) != count or given.keys() != every or _twice(names, n, kwargs):
            signature.bind(*args, **kwargs)  # raises what the call would
            raise TypeError("the arguments do not fit")
        return given

    return bind


def _twice(names: Tuple[str, ...], n: int, kwargs: Mapping[str, Any]) -> bool:
    """Whether a parameter has a positional and a keyword argument."""
    if n == 0 or not kwargs:
        return False
    return any(name in kwargs for name in names[:n])


def _any(signature: inspect.Signature) -> Bind:
    extra: Optional[str] = None
    for p in signature.parameters.values():
        if p.kind is p.VAR_KEYWORD:
            extra = p.name

    def bind(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Dict[str, Any]:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)
        if extra is not None:  # **kwargs are arguments by their own names
            more = given.pop(extra)
            for name in more:
                if name in given:
                    raise TypeError(f"the argument {name!r} has the name of a positional parameter")
            given.update(more)
        return given

    return bind


def _without(bind: Bind, left_out: FrozenSet[str]) -> Bind:
    def bind_rest(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Dict[str, Any]:
        given = bind(args, kwargs)
        return {name: value for name, value in given.items() if name not in left_out}

    return bind_rest


def _framework(function: Callable[..., Any], parameters: "list[inspect.Parameter]") -> FrozenSet[str]:
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # an annotation that cannot be evaluated here
        hints = {p.name: p.annotation for p in parameters}
    return frozenset(p.name for p in parameters if _is_context(hints.get(p.name)))


def _is_context(annotation: Any) -> bool:
    annotation = typing.get_origin(annotation) or annotation
    if not isinstance(annotation, type):
        return False
    for kind in annotation.__mro__:
        if kind.__name__ in _contexts.get(kind.__module__.partition(".")[0], ()):
            return True
    return False


def picker(function: Callable[..., Any]) -> Callable[[Mapping[str, Any]], Any]:
    """Calls a function of the user's with those of the arguments that it names."""
    signature = inspect.signature(function)
    parameters = signature.parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return lambda given: function(**given)
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return lambda given: function(**{name: given[name] for name in names if name in given})


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))
