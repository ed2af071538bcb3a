"""Libraries that load other libraries wherever they find them: seconds and memory that no model needs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder


class _Hiding(MetaPathFinder):
    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def find_spec(self, fullname: str, _path: object, _target: object = None) -> None:
        """Raise ModuleNotFoundError for the names that are hidden."""
        if fullname in self._names:
            raise ModuleNotFoundError(f"{fullname} is not needed here", name=fullname)


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Import in this block as if the top-level packages ``names`` were not installed."""
    hiding = _Hiding(names)
    sys.meta_path.insert(0, hiding)
    try:
        yield
    finally:
        sys.meta_path.remove(hiding)
