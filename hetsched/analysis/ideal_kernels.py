"""Kernel that enumerates ideals."""

from __future__ import annotations

import numpy as np

from hetsched.compiled import builder


@builder
def grow(begin, end, count, limit, below, mark, sets, hashes, slots, numbers, element, result):  # type: ignore[no-untyped-def]
    """Add what ideals `begin` to `end` grow to by one element; return the number of ideals, -1 if beyond the limit."""
    size, words = below.shape
    last_slot = len(slots) - 1
    used = 0
    new = np.empty(words, np.uint64)
    for c in range(begin, end):
        before = used
        for y in range(size):
            bit = np.uint64(1) << np.uint64(y % 64)
            if sets[c, y // 64] & bit:
                continue
            ready = True
            for w in range(words):
                if below[y, w] & ~sets[c, w]:
                    ready = False
                    break
            if not ready:
                continue
            for w in range(words):
                new[w] = sets[c, w]
            new[y // 64] |= bit
            key = hashes[c] + mark[y]
            slot = np.int64((key ^ (key >> np.uint64(29))) & np.uint64(last_slot))
            found = np.int64(-1)
            while slots[slot] >= 0:
                other = slots[slot]
                if hashes[other] == key:
                    same = True
                    for w in range(words):
                        if sets[other, w] != new[w]:
                            same = False
                            break
                    if same:
                        found = other
                        break
                slot = (slot + 1) & last_slot
            if found < 0:
                if count > limit:
                    return -1
                found = count
                for w in range(words):
                    sets[found, w] = new[w]
                hashes[found] = key
                slots[slot] = found
                count += 1
            element[used], result[used] = y, found
            used += 1
        numbers[c - begin] = used - before
    return count
