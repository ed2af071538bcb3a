"""Predict functions that publish what they were given and what they said."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from types import GeneratorType
from typing import Any, Protocol, TypeVar

from attributary.service.arrays import Numbers, dimensions, is_array
from attributary.service.observed import Observed, observe, said

_Function = TypeVar("_Function", bound=Callable[..., Any])
Chosen = str | Callable[..., Any] | None
_NAMES = ("feature_names_in_", "feature_names")


class Publishing(Protocol):
    """The part of the publisher that is needed here."""

    @property
    def feature_names(self) -> Sequence[str] | None:
        """Names of array features."""

    def publish(self, features: Any, outputs: Any, *, id: Any = None) -> bool:  # noqa: A002
        """Queue one row."""

    def publish_batch(self, features: Any, outputs: Any, *, ids: Any = None) -> int:
        """Queue many rows."""

    def refuse(self, error: Exception, rows: int = 1) -> bool:
        """Count rows that cannot be published."""


def watched(
    publisher: Publishing,
    function: _Function,
    *,
    features: Chosen = None,
    outputs: Callable[[Any], Any] | None = None,
    ids: Chosen = None,
) -> _Function:
    """Return ``function``, publishing its rows; arguments, result and exceptions are its own.

    See ``Publisher.watch``.
    """
    watch = _Watch(publisher, function, features, outputs, ids)
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - whether it is a coroutine function
    ):

        async def answered(*args: Any, **kwargs: Any) -> Any:
            before = watch.before(args, kwargs)
            result = await function(*args, **kwargs)
            watch.after(before, result)
            return result

        wrapper: Any = answered
    else:

        def called(*args: Any, **kwargs: Any) -> Any:
            before = watch.before(args, kwargs)
            result = function(*args, **kwargs)
            # Asked of its type first: isawaitable takes as long as encoding a row.
            kind = type(result)
            may_wait = kind is GeneratorType or hasattr(kind, "__await__")
            if may_wait and inspect.isawaitable(result):
                return watch.awaited(before, result)
            watch.after(before, result)
            return result

        wrapper = called
    functools.update_wrapper(wrapper, function)
    found: _Function = wrapper
    return found


def publish_seen(publisher: Publishing, seen: Observed, result: Any, ids: Any = None) -> None:
    """Publish what was observed with what was said of it; nothing is raised."""
    try:
        features, alone = seen.features, not seen.many
        one = seen.rows == 1 and is_array(result) and result.size == 1
        outputs = result.item() if one else said(result)
        if seen.rows == 1 and seen.many and not isinstance(outputs, dict):
            number = one or dimensions(outputs) == 0
            alone = number or len(outputs) == 1
            if alone:  # half the time of a batch of one
                outputs = outputs if number else outputs[0]
                features = features if type(features) is Numbers else _first(features)
                ids = ids if ids is None or dimensions(ids) == 0 else ids[0]
    except Exception as error:
        publisher.refuse(error, seen.rows)
        return
    if alone:
        publisher.publish(features, outputs, id=ids)
    else:
        many = [features.tolist()] if type(features) is Numbers else features
        publisher.publish_batch(many, outputs, ids=ids)


def _first(features: Any) -> Any:
    """Return the first row of a batch."""
    if isinstance(features, dict):
        return {name: column[0] for name, column in features.items()}
    return features[0]


class _Watch:
    def __init__(
        self,
        publisher: Publishing,
        function: Callable[..., Any],
        features: Chosen,
        outputs: Callable[[Any], Any] | None,
        ids: Chosen,
    ) -> None:
        self._publisher = publisher
        self._features = features
        self._outputs = outputs
        self._ids = ids
        self._owner = getattr(function, "__self__", None)
        self._named = publisher.feature_names is not None
        self._names: Sequence[str] | None = None
        try:
            self._signature: inspect.Signature | None = inspect.signature(function)
        except (TypeError, ValueError):  # written in C
            self._signature = None
        parameters = [] if self._signature is None else list(self._signature.parameters)
        self._of_class = parameters[:1] in (["self"], ["cls"])
        self._first_argument = features is None and not self._of_class

    def before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Observed, Any] | None:
        """Read the features, which the function may change; None where they are none."""
        try:
            usual = self._first_argument and args
            given = args[0] if usual else self._chosen(self._features, args, kwargs)
            ids = None if self._ids is None else self._chosen(self._ids, args, kwargs)
            return observe(given, None if self._named else self._known_names(args)), ids
        except Exception as error:
            self._publisher.refuse(error, 1)
            return None

    def after(self, before: tuple[Observed, Any] | None, result: Any) -> None:
        """Publish the rows with what the function said."""
        if before is None:
            return
        seen, ids = before
        plain = type(seen.features) is Numbers and self._outputs is None and ids is None
        if plain and is_array(result) and result.size == 1:
            self._publisher.publish(
                seen.features, result.item()
            )  # the same as below, in fewer calls
            return
        try:
            given = result if self._outputs is None else self._outputs(result)
        except Exception as error:
            self._publisher.refuse(error, seen.rows)
            return
        publish_seen(self._publisher, seen, given, ids)

    async def awaited(self, before: tuple[Observed, Any] | None, result: Any) -> Any:
        """Wait for what a function without ``async`` returned."""
        found = await result
        self.after(before, found)
        return found

    def _chosen(self, wanted: Chosen, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if callable(wanted):
            return wanted(*args, **kwargs)
        if wanted is not None:
            if wanted in kwargs:
                return kwargs[wanted]
            if self._signature is None:
                raise TypeError(f"the function has no argument {wanted!r} that can be told")
            bound = self._signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return bound.arguments[wanted]
        positional = args[1:] if self._of_class else args
        if positional:
            return positional[0]
        if not kwargs:
            raise TypeError("the function was called without arguments: no features")
        return next(iter(kwargs.values()))

    def _known_names(self, args: tuple[Any, ...]) -> Sequence[str] | None:
        """Return the names that the fitted model knows."""
        if self._names is None:
            owner = args[0] if self._of_class and args else self._owner
            for name in _NAMES:
                found = _quiet(owner, name)
                if found is not None and len(found) and all(isinstance(n, str) for n in found):
                    self._names = [str(each) for each in found]
                    break
        return self._names


def _quiet(owner: Any, name: str) -> Any:
    """Return an attribute; None where there is none, or asking for it fails."""
    try:
        found = getattr(owner, name, None)
        return found if hasattr(found, "__len__") else None
    except Exception:
        return None
