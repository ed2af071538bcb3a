"""Benchmarks: ``python -m benchmarks`` measures, and writes docs/performance.md from what it measured.

One core: the numerical libraries are held to one thread before numpy is first imported, here and,
through the environment, in the processes that the peers run in.
"""

import os

THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
os.environ.update(dict.fromkeys(THREADS, "1"))
