"""A binary heap of (key, item) pairs in two arrays, for numba kernels.

A heap occupies ``keys[base : base + size]`` and ``items[...]``, so many heaps can share two arrays.
The least key is removed first; ties go to the least item.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hetsched.compiled import inner

Keys = npt.NDArray[np.float64]
Items = npt.NDArray[np.int64]


@inner
def push(keys: Keys, items: Items, base: int, size: int, key: float, item: int) -> int:
    """Add a pair to the heap at `base` and return its new size."""
    position = size
    while position > 0:
        parent = (position - 1) // 2
        k = keys[base + parent]
        if k < key or (k == key and items[base + parent] <= item):
            break
        keys[base + position] = k
        items[base + position] = items[base + parent]
        position = parent
    keys[base + position] = key
    items[base + position] = item
    return size + 1


@inner
def pop(keys: Keys, items: Items, base: int, size: int) -> int:
    """Remove the least pair, which is at `base`, and return the new size."""
    size -= 1
    key = keys[base + size]
    item = items[base + size]
    position = 0
    while True:
        child = 2 * position + 1
        if child >= size:
            break
        right = child + 1
        if right < size:
            a, b = keys[base + child], keys[base + right]
            if b < a or (b == a and items[base + right] < items[base + child]):
                child = right
        k = keys[base + child]
        if key < k or (key == k and item <= items[base + child]):
            break
        keys[base + position] = k
        items[base + position] = items[base + child]
        position = child
    keys[base + position] = key
    items[base + position] = item
    return size
