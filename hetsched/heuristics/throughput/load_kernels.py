"""Kernels of the search for a least load: one assignment of units to devices, and moves that keep its loads up to date.

The state is the tuple `State` in `load_search`: the device of each unit, the load of each resource (devices, then
channels or ports), the bytes on each device, and for tensors by way of a host how many readers each device has.
What a move costs is seen in the `excess`: the sum of squares of what loads exceed a target by, as shares of it, and of
what memory exceeds the capacity by.
"""

from __future__ import annotations

import numpy as np

from hetsched.compiled import builder

_MEMORY_WEIGHT = 1.0
_MOST = 64  # units in a group


@builder
def _next(state):  # type: ignore[no-untyped-def]
    """Return the next random uint64 (xorshift64*)."""
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    return x * np.uint64(2685821657736338717)


@builder
def _below(state, count):  # type: ignore[no-untyped-def]
    """Return a random number from 0 to count - 1."""
    return np.int64((_next(state) >> np.uint64(33)) % np.uint64(count))


@builder
def _unit_interval(state):  # type: ignore[no-untyped-def]
    return np.float64(_next(state) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@builder
def _add(load, r, amount, target, total):  # type: ignore[no-untyped-def]
    """Add to a load and keep the excess, ``total[0]``."""
    over = load[r] / target - 1.0
    if over > 0.0:
        total[0] -= over * over
    load[r] += amount
    over = load[r] / target - 1.0
    if over > 0.0:
        total[0] += over * over


@builder
def _hold(held, capacity, k, amount, total):  # type: ignore[no-untyped-def]
    """Add to the bytes on a device and keep the excess."""
    if amount == 0.0 or capacity[k] == np.inf:
        return
    room = max(capacity[k], 1e-300)
    over = held[k] / room - 1.0
    if over > 0.0:
        total[0] -= _MEMORY_WEIGHT * over * over
    held[k] += amount
    over = held[k] / room - 1.0
    if over > 0.0:
        total[0] += _MEMORY_WEIGHT * over * over


@builder
def move(u, k, data, need, capacity, device, load, held, readers, remote, target, total):  # type: ignore[no-untyped-def]
    """Move unit u to device k."""
    host, resource, _, cost, source, _, reader, out_ptr, out, read_ptr, read, time = data
    n_devices = cost.shape[1]
    h = device[u]
    if h == k:
        return
    _add(load, h, -cost[u, h], target, total)
    _add(load, k, cost[u, k], target, total)
    _hold(held, capacity, h, -need[u], total)
    _hold(held, capacity, k, need[u], total)
    if host:
        for a in range(out_ptr[u], out_ptr[u + 1]):
            t = out[a]
            if remote[t] > 0:
                _add(load, h, -time[t, 1, h], target, total)
            if readers[t, h] > 0:  # they were at home
                _add(load, h, time[t, 0, h], target, total)
                remote[t] += 1
            if readers[t, k] > 0:
                _add(load, k, -time[t, 0, k], target, total)
                remote[t] -= 1
            if remote[t] > 0:
                _add(load, k, time[t, 1, k], target, total)
        for a in range(read_ptr[u], read_ptr[u + 1]):
            t = read[a]
            s = device[source[t]]
            readers[t, h] -= 1
            if readers[t, h] == 0 and h != s:
                _add(load, h, -time[t, 0, h], target, total)
                remote[t] -= 1
                if remote[t] == 0:
                    _add(load, s, -time[t, 1, s], target, total)
            readers[t, k] += 1
            if readers[t, k] == 1 and k != s:
                _add(load, k, time[t, 0, k], target, total)
                remote[t] += 1
                if remote[t] == 1:
                    _add(load, s, time[t, 1, s], target, total)
    else:
        for side in range(2):
            first = out_ptr[u] if side == 0 else read_ptr[u]
            last = out_ptr[u + 1] if side == 0 else read_ptr[u + 1]
            for a in range(first, last):
                t = out[a] if side == 0 else read[a]
                d = device[reader[t]] if side == 0 else device[source[t]]  # each tensor has one reader here
                for end in range(2):
                    x = h if end == 0 else k
                    if x == d:
                        continue
                    i, j = (x, d) if side == 0 else (d, x)
                    seconds = time[t, i, j] if end == 1 else -time[t, i, j]
                    one, other = resource[i, j, 0], resource[i, j, 1]
                    if one >= 0:
                        _add(load, n_devices + one, seconds, target, total)
                    if other != one:
                        _add(load, n_devices + other, seconds, target, total)
    device[u] = k


@builder
def reckon(data, need, capacity, device, load, held, readers, remote, target, total):  # type: ignore[no-untyped-def]
    """Work out all loads of an assignment anew, so that rounding does not pile up."""
    host, resource, _, cost, source, reader_ptr, reader, _, _, _, _, time = data
    n_devices = cost.shape[1]
    load[:] = 0.0
    held[:] = 0.0
    readers[:] = 0
    remote[:] = 0
    for u in range(len(cost)):
        load[device[u]] += cost[u, device[u]]
        held[device[u]] += need[u]
    for t in range(len(source)):
        s = device[source[t]]
        for a in range(reader_ptr[t], reader_ptr[t + 1]):
            d = device[reader[a]]
            if host:
                readers[t, d] += 1
                if readers[t, d] == 1 and d != s:
                    remote[t] += 1
                    load[d] += time[t, 0, d]
            elif d != s:
                one, other = resource[s, d, 0], resource[s, d, 1]
                if one >= 0:
                    load[n_devices + one] += time[t, s, d]
                if other != one:
                    load[n_devices + other] += time[t, s, d]
        if host and remote[t] > 0:
            load[s] += time[t, 1, s]
    total[0] = 0.0
    for r in range(len(load)):
        over = load[r] / target - 1.0
        if over > 0.0:
            total[0] += over * over
    for k in range(n_devices):
        if capacity[k] != np.inf:
            over = held[k] / max(capacity[k], 1e-300) - 1.0
            if over > 0.0:
                total[0] += _MEMORY_WEIGHT * over * over


@builder
def fits(held, capacity):  # type: ignore[no-untyped-def]
    """Return whether every device has the memory for what it holds."""
    return np.all(held <= capacity * (1 + 1e-12))


@builder
def _grow(u, size, way, data, device, random, group, chosen):  # type: ignore[no-untyped-def]
    """Write into `group` up to `size` connected units of u's device; `way` 0 any neighbour, 1 what reads, 2 what is read."""
    _, _, _, _, source, reader_ptr, reader, out_ptr, out, read_ptr, read, _ = data
    count, done = 1, 0
    group[0] = u
    chosen[u] = True
    while done < count and count < size:
        x = group[done]
        done += 1
        if way != 2:
            for a in range(out_ptr[x], out_ptr[x + 1]):
                for b in range(reader_ptr[out[a]], reader_ptr[out[a] + 1]):
                    y = reader[b]
                    if count < size and not chosen[y] and device[y] == device[u] and (way == 1 or _below(random, 4) > 0):
                        group[count] = y
                        chosen[y] = True
                        count += 1
        if way != 1:
            for a in range(read_ptr[x], read_ptr[x + 1]):
                y = source[read[a]]
                if count < size and not chosen[y] and device[y] == device[u] and (way == 2 or _below(random, 4) > 0):
                    group[count] = y
                    chosen[y] = True
                    count += 1
    for a in range(count):
        chosen[group[a]] = False
    return count


@builder
def _neighbour(u, data, device, random):  # type: ignore[no-untyped-def]
    """Return the device of a random neighbour of u, its own without one."""
    _, _, _, _, source, reader_ptr, reader, out_ptr, out, read_ptr, read, _ = data
    n_out, n_read = out_ptr[u + 1] - out_ptr[u], read_ptr[u + 1] - read_ptr[u]
    if n_out + n_read == 0:
        return device[u]
    pick = _below(random, n_out + n_read)
    if pick >= n_out:
        return device[source[read[read_ptr[u] + pick - n_out]]]
    t = out[out_ptr[u] + pick]
    return device[reader[reader_ptr[t] + _below(random, reader_ptr[t + 1] - reader_ptr[t])]]


@builder
def anneal(  # type: ignore[no-untyped-def]
    moves, data, need, capacity, device, load, held, readers, remote, allowed, random, temperature, cooling, target, incumbent, best
):
    """Try `moves` moves from `device`; return the value of the best assignment that is below `incumbent`, which goes to `best`.

    Accepts by the excess over `target` seconds at ``temperature[0]``, which falls by the factor `cooling` with each move.
    """
    _, _, user, cost, _, _, _, _, _, _, _, _ = data
    n_units, n_devices = cost.shape
    total = np.zeros(1)
    reckon(data, need, capacity, device, load, held, readers, remote, target, total)
    group = np.empty(_MOST, np.int64)
    chosen = np.zeros(n_units, np.bool_)
    value = incumbent
    for _ in range(moves):
        temperature[0] *= cooling
        u = _below(random, n_units)
        if _below(random, 2) == 0:
            worst = 0
            for r in range(1, len(load)):
                if load[r] > load[worst]:
                    worst = r
            if worst >= n_devices:
                worst = user[worst - n_devices]
            for _ in range(8):
                if device[u] == worst:
                    break
                u = _below(random, n_units)
        h = device[u]
        k = _neighbour(u, data, device, random) if _below(random, 2) == 0 else _below(random, n_devices)
        if k == h:
            k = (h + 1 + _below(random, n_devices - 1)) % n_devices
        if not allowed[u, k]:
            continue
        before = total[0]
        kind = _below(random, 8)
        count, back = 1, np.int64(-1)
        group[0] = u
        if kind < 2:  # swap
            for _ in range(8):
                v = _below(random, n_units)
                if device[v] == k:
                    if allowed[v, h]:
                        back = v
                    break
        elif kind < 5:
            size = 2 + _below(random, min(_MOST - 1, max(2, 2 * n_units // n_devices)))
            if _below(random, 2) == 0:
                size = min(size, 2 + _below(random, 4))
            count = _grow(u, size, _below(random, 3), data, device, random, group, chosen)
            for a in range(count):
                if not allowed[group[a], k]:
                    count = 0
                    break
        for a in range(count):
            move(group[a], k, data, need, capacity, device, load, held, readers, remote, target, total)
        if back >= 0:
            move(back, h, data, need, capacity, device, load, held, readers, remote, target, total)
        if total[0] <= before or _unit_interval(random) < np.exp((before - total[0]) / temperature[0]):
            worst_load = load.max()
            if worst_load < value and fits(held, capacity):
                value = worst_load
                best[:] = device
        else:
            if back >= 0:
                move(back, k, data, need, capacity, device, load, held, readers, remote, target, total)
            for a in range(count):
                move(group[a], h, data, need, capacity, device, load, held, readers, remote, target, total)
    return value
