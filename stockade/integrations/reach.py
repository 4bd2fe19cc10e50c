"""Functions that vector environments `apply` to their environments for Stable-Baselines3, in worker processes too: so
nothing heavy is imported here."""

from typing import Any

import gymnasium


def call_method(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], environment: Any) -> Any:
    """Call a method of the environment or of one of its wrappers."""
    return environment.get_wrapper_attr(name)(*args, **kwargs)


def wrapper_names(environment: Any) -> frozenset[str]:
    """Names of the classes that the environment's wrappers are of, so that no process has to import the classes."""
    names: set[str] = set()
    while isinstance(environment, gymnasium.Wrapper):
        names.update(class_name(parent) for parent in type(environment).__mro__)
        environment = environment.env
    return frozenset(names)


def class_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
