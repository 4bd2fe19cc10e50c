"""Configurations from Python's keywords: `train(red="meander", learning_rate=1e-3)` -> a dataclass, checked.

A keyword names a field of the dataclass or of a dataclass within it, as the flags of the command line do.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from stockade.errors import InputError, SettingError, did_you_mean

T = TypeVar("T")


def configure(base: T, settings: dict[str, Any], function: str, inner: Sequence[str] = ()) -> T:
    """A copy of a frozen dataclass with some settings, by name of their field, changed.

    `inner`: fields that are dataclasses and whose own fields are settings too. `function` is for messages: InputError
    names an unknown setting, with the nearest known one, or a value of the wrong type.
    """
    owner = {f.name: where for where in inner for f in fields(getattr(base, where))}
    owner |= {f.name: "" for f in fields(base)}  # type: ignore[arg-type]
    for name in settings:
        if name not in owner:
            near = did_you_mean(name, owner) or f" It knows {', '.join(sorted(owner))}."
            raise InputError(f"{function}() has no setting {name!r}.{near}")
    outer = _checked(base, {name: value for name, value in settings.items() if not owner[name]})
    for where in inner:
        part = outer.get(where, getattr(base, where))
        outer[where] = replace(part, **_checked(part, {n: v for n, v in settings.items() if owner[n] == where}))
    return replace(base, **outer)  # type: ignore[type-var]


def _checked(config: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of a dataclass, of the types that it wants."""
    hints = get_type_hints(type(config))
    changes = {name: _as(hints[name], value) for name, value in settings.items()}
    for name, value in changes.items():
        if not _fits(value, hints[name]):
            raise SettingError(name, value, f"is not possible: it must be {_described(hints[name])}")
    return changes


def _as(hint: Any, value: Any) -> Any:
    """Text as a path and a list as a tuple, where that is what is wanted."""
    if isinstance(value, str) and (hint is Path or Path in get_args(hint)) and not _fits(value, hint):
        return Path(value)
    return tuple(value) if isinstance(value, list) and get_origin(hint) is tuple else value


def _fits(value: Any, hint: Any) -> bool:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return value in arguments
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in arguments)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(item, arguments[0]) for item in value)
    if hint in (int, float):
        return isinstance(value, numbers.Integral if hint is int else numbers.Real) and not isinstance(value, bool)
    return isinstance(value, hint)


def _described(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return f"one of {', '.join(map(repr, arguments))}"
    if origin in (Union, UnionType):
        return " or ".join(map(_described, arguments))
    if origin is tuple:
        return f"a tuple of {_described(arguments[0])}"
    names = {int: "a whole number", float: "a number", bool: "True or False", str: "text", type(None): "None"}
    return names.get(hint, f"a {getattr(hint, '__name__', hint)}")
