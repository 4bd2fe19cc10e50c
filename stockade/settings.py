"""Configurations from Python's keywords: `train(red="meander", learning_rate=1e-3)` -> a dataclass, checked.

A keyword names a field of the dataclass or of a dataclass within it, as the flags of the command line do.
"""

from __future__ import annotations

import numbers
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from stockade.errors import InputError, SettingError, did_you_mean

T = TypeVar("T")


def configure(base: T, settings: dict[str, Any], function: str) -> T:
    """A copy of a configuration with some settings changed.

    Args:
        base: a frozen dataclass; its fields may be dataclasses themselves.
        settings: new values by name of the field; those of inner dataclasses by their own names.
        function: for messages.

    Raises:
        InputError: an unknown name, with the nearest known one, or a value of the wrong type.
    """
    known = _names(base)
    for name in settings:
        if name not in known:
            near = did_you_mean(name, known) or f" It knows {', '.join(sorted(known))}."
            raise InputError(f"{function}() has no setting {name!r}.{near}")
    return _changed(base, settings)


def _names(config: Any) -> list[str]:
    inner = [getattr(config, f.name) for f in fields(config) if is_dataclass(getattr(config, f.name))]
    return [f.name for f in fields(config)] + [name for one in inner for name in _names(one)]


def _changed(config: Any, settings: dict[str, Any]) -> Any:
    hints = get_type_hints(type(config))
    changes = {}
    for f in fields(config):
        value = getattr(config, f.name)
        if f.name in settings:
            value = changes[f.name] = _as(hints[f.name], settings[f.name])
            if not _fits(value, hints[f.name]):
                raise SettingError(f.name, value, f"is not possible: it must be {_described(hints[f.name])}")
        if is_dataclass(value) and any(name in settings for name in _names(value)):
            changes[f.name] = _changed(value, settings)
    return replace(config, **changes)


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
