"""Kernels of the contiguous dynamic program: every interval of ideals, on every class of devices."""

from __future__ import annotations

import numpy as np

from hetsched.compiled import builder


@builder
def extend(  # type: ignore[no-untyped-def]
    begin,
    end,
    ptr,
    element,
    larger,
    parent,
    added,
    cost,
    need,
    capacity,
    overlap,
    source,
    reader_ptr,
    reader,
    out_ptr,
    out,
    read_ptr,
    read,
    enter,
    leave,
    number,
    stride,
    price,
    worth,
    priced_to,
    best,
    from_ideal,
    from_class,
    limit,
    inside,
    within,
    below,
    beyond,
    path,
):
    """Extend the ideals `begin` to `end` by every interval whose load stays below ``limit[0]``.

    An interval is entered element by element in ascending order, so each is met once. Its load on a
    device of a class is its work and what its tensors take in and out: the largest of the three if
    they `overlap`, else their sum. What is exchanged with the ideal it begins at remains, however the
    interval grows.

    Parameters
    ----------
    ptr, element, larger
        The ideals, see `Ideals`; elements are units, in topological order.
    parent, added
        [I] a smaller ideal, and the element that it lacks.
    cost, need, capacity
        [U, C] seconds, [U] bytes, [C] bytes of one device.
    source, reader_ptr, reader, out_ptr, out, read_ptr, read, enter, leave
        The tensors, see `LoadData`; [H, C] seconds in and out.
    number, stride
        [C] devices of each class; state ``sum(used[c] * stride[c])`` counts those in use.
    price, worth, priced_to
        [S] prices of the devices a state leaves, [U] worth of the work of a unit at these prices, [I] of
        the units in an ideal: what is left must fit on the devices left.
    best, from_ideal, from_class
        [I, S] least largest load so far, and where it comes from.
    inside, within, below, beyond, path
        Scratch: [H] readers in the interval, [U] whether a unit is in it, [U] in the ideal it begins at,
        [U + 1] worth of later units, [U + 2, 4 + 5 C] stack.
    """
    n_states = best.shape[1]
    n_classes = cost.shape[1]
    full = best.shape[0] - 1
    margin = 1e-12 * priced_to[full]
    for c in range(begin, end):
        # What an interval from here must be worth at the least, so that the rest fits on the devices left.
        wanted = np.inf
        for s in range(n_states):
            if best[c, s] < limit[0]:
                for k in range(n_classes):
                    if (s // stride[k]) % (number[k] + 1) < number[k]:
                        after = price[s + stride[k]]
                        rest = priced_to[full] - priced_to[c] - (after * limit[0] * (1 + 1e-9) if after > 0 else 0.0)
                        wanted = min(wanted, rest - margin)
        if wanted == np.inf:
            continue
        below[:] = False
        smaller = c
        while smaller > 0:
            below[added[smaller]] = True
            smaller = parent[smaller]
        beyond[len(worth)] = 0.0
        for y in range(len(worth) - 1, -1, -1):
            beyond[y] = beyond[y + 1] + (0.0 if below[y] else worth[y])
        # A row of the path: ideal, its unit, where to go on in its successors, need; then for each class work, in, out,
        # and what of the latter two remains.
        depth = 0
        ideal = path[:, 0]
        unit = path[:, 1]
        place = path[:, 2]
        room = path[:, 3]
        load = path[:, 4:]
        ideal[0], unit[0], place[0], room[0] = c, -1, ptr[c], 0.0
        load[0, :] = 0.0
        while depth >= 0:
            here = int(ideal[depth])
            step = int(place[depth])
            if step == ptr[here + 1]:
                y = int(unit[depth])
                if y >= 0:
                    within[y] = False
                    for a in range(read_ptr[y], read_ptr[y + 1]):
                        inside[read[a]] -= 1
                depth -= 1
                continue
            place[depth] += 1
            y = element[step]
            if y <= unit[depth]:
                continue
            target = larger[step]
            if priced_to[target] - priced_to[c] + beyond[y + 1] < wanted - margin:
                continue  # units passed over do not come in later
            # Take the unit in.
            then = depth + 1
            load[then] = load[depth]
            room[then] = room[depth] + need[y]
            for k in range(n_classes):
                load[then, 5 * k] += cost[y, k]
            within[y] = True
            for a in range(out_ptr[y], out_ptr[y + 1]):
                t = out[a]
                read_below = False
                for b in range(reader_ptr[t], reader_ptr[t + 1]):
                    read_below |= below[reader[b]]
                for k in range(n_classes):
                    if inside[t] > 0:
                        load[then, 5 * k + 1] -= enter[t, k]
                    if inside[t] < reader_ptr[t + 1] - reader_ptr[t]:
                        load[then, 5 * k + 2] += leave[t, k]
                    if read_below:
                        load[then, 5 * k + 4] += leave[t, k]
            for a in range(read_ptr[y], read_ptr[y + 1]):
                t = read[a]
                inside[t] += 1
                if within[source[t]]:
                    if inside[t] == reader_ptr[t + 1] - reader_ptr[t]:
                        for k in range(n_classes):
                            load[then, 5 * k + 2] -= leave[t, k]
                elif inside[t] == 1:
                    for k in range(n_classes):
                        load[then, 5 * k + 1] += enter[t, k]
                        if below[source[t]]:
                            load[then, 5 * k + 3] += enter[t, k]
            # Put it on a device of each class.
            alive = False
            for k in range(n_classes):
                work, coming, going = load[then, 5 * k], load[then, 5 * k + 1], load[then, 5 * k + 2]
                if room[then] > capacity[k]:
                    continue
                stays_in, stays_out = load[then, 5 * k + 3], load[then, 5 * k + 4]
                least = max(work, stays_in, stays_out) if overlap else work + stays_in + stays_out
                if not least * (1 - 1e-12) < limit[0]:
                    continue
                alive = True
                total = max(work, coming, going) if overlap else work + coming + going
                if not total < limit[0]:
                    continue
                left = priced_to[full] - priced_to[target]
                for s in range(n_states):
                    if not best[c, s] < limit[0] or (s // stride[k]) % (number[k] + 1) == number[k]:
                        continue
                    after = s + stride[k]
                    if left > (price[after] * limit[0] * (1 + 1e-9) if price[after] > 0 else 0.0) + margin:
                        continue
                    value = max(best[c, s], total)
                    if value < best[target, after]:
                        best[target, after] = value
                        from_ideal[target, after] = c
                        from_class[target, after] = k
                        if target == full and value < limit[0]:
                            limit[0] = value
            if alive:
                depth = then
                ideal[depth], unit[depth], place[depth] = target, y, ptr[target]
            else:
                within[y] = False
                for a in range(read_ptr[y], read_ptr[y + 1]):
                    inside[read[a]] -= 1
