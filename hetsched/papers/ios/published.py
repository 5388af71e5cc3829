"""What the authors measured on a V100, in milliseconds and seconds.

From the tables of the README of their program, github.com/mit-han-lab/inter-operator-scheduler, which are the figures of the paper, and
from the runs that it prints after them.
"""

from __future__ import annotations

WAYS = ("sequential", "greedy", "merge", "concurrent", "both")
"""Schedules of Figure 6: sequential, greedy, IOS-Merge, IOS-Parallel and IOS-Both."""
FIGURE_6 = {
    "inception_v3": (6.51, 4.62, 5.39, 4.11, 4.03),
    "randwire": (8.49, 6.27, 8.54, 6.02, 6.02),
    "nasnet_a": (22.95, 16.78, 22.94, 16.04, 16.04),
    "squeezenet": (0.86, 0.98, 0.74, 0.82, 0.73),
}
"""Milliseconds at batch 1, the mean of five experiments."""
AGAIN = {
    "inception_v3": (6.25, 4.62, 5.13, 4.06, 3.94),
    "randwire": (8.53, 6.27, 8.58, 5.80, 5.78),
    "nasnet_a": (23.02, 16.60, 23.06, 15.87, 15.85),
    "squeezenet": (0.89, 0.98, 0.68, 0.86, 0.68),
}
"""The same in one other run."""
SEARCH = {"inception_v3": 48, "randwire": 4407, "nasnet_a": 3653, "squeezenet": 1}
"""Seconds of the search of IOS-Both in that run."""
FIGURE_9 = {
    "inception_v3": {(1, 3): (5, 4.22), (1, 8): (7, 4.06), (2, 3): (17, 4.02), (2, 8): (25, 3.99), (3, 3): (29, 3.99), (3, 8): (43, 3.96)},
    "nasnet_a": {
        (1, 3): (137, 17.54),
        (1, 8): (492, 16.54),
        (2, 3): (360, 16.85),
        (2, 8): (2648, 16.09),
        (3, 3): (641, 16.73),
        (3, 8): (3412, 15.91),
    },
}
"""By limits (r, s): seconds of the search, and milliseconds."""
SPECIALISED = {
    "1": {1: 4.04, 32: 29.21, 128: 105.87},
    "32": {1: 4.45, 32: 27.62, 128: 103.58},
    "128": {1: 4.58, 32: 27.85, 128: 102.96},
    "k80": {1: 4.42},
    "16": {16: 15.17},
    "64": {64: 51.11},
}
"""Inception-v3 by what a schedule was made for, a batch size or a device, and by batch size on a V100: Table 3, and Figure 11."""
SEQUENTIAL = {1: 6.25, 16: 17.95, 32: 30.54, 64: 55.67, 128: 108.55}
"""Inception-v3 in sequence by batch size; of three runs at batch 1, 6.20, 6.25 and 6.51, the median."""
FIGURE_11 = {
    "sequential": (6.20, 17.95, 30.54, 55.67, 108.55),
    "TensorRT": (4.82, 17.82, 29.97, 56.25, 106.84),
    "both": (3.94, 15.17, 27.00, 51.11, 102.74),
}
"""Milliseconds of Inception-v3 for batches of 1, 16, 32, 64 and 128."""
K80 = {"k80": 13.93, "v100": 14.64}
"""Inception-v3 at batch 1 on a K80, by the device that a schedule was made for."""
