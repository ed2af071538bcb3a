"""How much memory objects hold: the bytes of everything that can be reached from them."""

from __future__ import annotations

import gc
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np

from attributary.workers.stream.catalogue import ControlCatalogue

# What all share, or what belongs to the code.
_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, ControlCatalogue)


def weigh(*roots: Any, shared: tuple[type, ...] = _SHARED) -> int:
    """Return the bytes that the roots hold, each object counted once."""
    seen: set[int] = set()
    waiting: list[Any] = list(roots)
    total = 0
    while waiting:
        found = waiting.pop()
        if id(found) in seen or isinstance(found, shared):
            continue
        seen.add(id(found))
        total += sys.getsizeof(found)
        waiting.extend(gc.get_referents(found))
        if isinstance(found, np.ndarray) and found.base is not None:
            waiting.append(found.base)
    return total
