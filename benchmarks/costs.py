"""How true the analytic cost model is: its constants fitted on some networks, its error on others.

    python benchmarks/costs.py [--quick] [--write] [--profile FILE] [--data ../shared/data/ios]

Three sources: times of a core of this machine, measured first unless a profile is given; latencies of whole networks that the authors
of IOS measured on a V100; and their AutoTVM logs, kernels tuned for the convolutions of four networks on a V100 at batch 1. Constants of
`Analytic` are fitted on half of the networks and compared on the other half; beside them are the roofline as it is, and one that is
fitted in the same way. With --write the constants for CPUs are those of all networks, and `hetsched/costs/families.json` is written,
with the errors of what was held. Needs torch and scipy.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import figures
import instances
import msgspec
import numpy as np
from figures import percent
from scipy.optimize import least_squares
from truth import network

import hetsched as hs
from hetsched.costs.analytic import CLASSES, DENSE, Analytic, Family, class_of
from hetsched.costs.profile_comparison import spearman
from hetsched.papers.ios import published

REGION = "costs"
DATA = instances.DATA / "ios"
FAMILIES = Path(hs.__file__).parent / "costs" / "families.json"
NETWORKS = {"googlenet": 224, "randwire": 224, "squeezenet": 224, "inception_v3": 299}
SMALLER = 112
"""A second size of the images."""
QUICK = 48
BATCHES = (1, 4)
SEQUENTIAL = {
    "inception_v3": {batch: 1e-3 * ms for batch, ms in published.SEQUENTIAL.items()},
    "squeezenet": {1: 1e-3 * published.FIGURE_6["squeezenet"][0]},
}
"""Seconds of all operators one after another on a V100, as the authors of IOS measured them."""
V100 = Family(
    source="prototype fit on Inception-v3's operators in ONNX Runtime on a V100, measured by the authors of PPipe; not refitted here",
    date="entered 2026-11-24",
    n=214,
    efficiency={"conv3x3": 1.58, "conv1x1": 1.15, "conv": 1.15, "depthwise": 1.15, "matmul": 1.15, "attention": 1.15, "other": 1.15},
    bandwidth={"other": 0.79, "max_pool": 0.46, "avg_pool": 0.46, "global_pool": 0.46},
    error={"all": 1.0},
    a=1.16,
    k0=104.0,
)
LAUNCH = 4.8e-6
"""Seconds to launch an operator, of the same source."""
TUNED = ("inception_v3", "nasnet_large", "randwire_large", "squeezenet")
EFFICIENT = {"cpu float32": 1.2, "cuda float32": 4.0}
"""The most that a fit may take for a part of a peak: Winograd's algorithm has fewer FLOPs than are counted, and clocks vary."""


class Samples(NamedTuple):
    """Operators of one network, and what they took on one device with one batch size."""

    network: str
    graph: hs.TaskGraph
    cluster: hs.Cluster
    batch: int
    seconds: Any
    """[n]"""


# ---------------------------------------------------------------------- measurements


def sizes(quick: bool) -> list[tuple[str, int]]:
    """Return the networks, and height and width of their images."""
    if quick:
        return [(name, QUICK) for name in ("googlenet", "squeezenet")]
    return [(name, pixels) for name, size in NETWORKS.items() for pixels in (size, SMALLER)]


def measured(quick: bool) -> hs.costs.Profile:
    """Return the profile of the networks on one core."""
    core = [max(os.sched_getaffinity(0))]
    profile = hs.costs.Profile()
    for name, pixels in sizes(quick):
        print(f"measuring {name}, {pixels} x {pixels} pixels", flush=True)
        module, image = network(name, pixels, 1)
        runs = 2 if quick else 15
        profile = hs.runtime.profile(module, image, devices={"core": core}, batch_sizes=BATCHES, runs=runs, known=profile)
    return profile


def samples_of(profile: hs.costs.Profile, quick: bool) -> list[Samples]:
    """Return the different operators of each network of a profile, by batch size."""
    made = []
    for name, pixels in sizes(quick):
        graph = hs.runtime.Program(*network(name, pixels, 1)).graph
        digests = profile.network(graph).digests
        place = [digests.index(digest) for digest in dict.fromkeys(digests)]
        for batch in profile.batch_sizes:
            seconds = profile.amounts("seconds", [digests[i] for i in place], ["core"], [batch])[:, 0, 0]
            made.append(Samples(name, part(graph, place), profile.only(devices=["core"]).cluster(), batch, seconds))
    return made


def part(graph: hs.TaskGraph, tasks: Sequence[int]) -> hs.TaskGraph:
    """Return some tasks of a graph, without edges."""
    columns = ("weight_bytes", "input_bytes", "output_bytes", "flops", "bytes_accessed")
    return hs.TaskGraph(
        [graph.names[i] for i in tasks],
        op=[graph.op[i] for i in tasks],
        shape=[graph.shape[i] for i in tasks],
        **{name: getattr(graph, name)[list(tasks)] for name in columns},
    )


def tuned(folder: Path) -> list[Samples]:
    """Return the convolutions of the IOS authors' logs, with the seconds of their best kernels on a V100."""
    made = []
    for name in TUNED:
        rows: dict[str, float] = {}
        for line in (folder / log(name)).read_text().splitlines():
            record = json.loads(line)
            times, failed = record["r"][:2]
            if not failed:
                key = json.dumps(record["i"][4])
                rows[key] = min(rows.get(key, np.inf), float(np.mean(times)))
        made.append(convolutions(name, [(json.loads(key), seconds) for key, seconds in rows.items()]))
    return made


def log(name: str) -> str:
    """Return the name of the log of a network."""
    return f"autotvm/{name}_None_1.log"


def convolutions(name: str, rows: Sequence[tuple[list[Any], float]]) -> Samples:
    """Return the samples of convolutions as TVM describes them: operator, data, kernel, stride, padding, dilation."""
    ops, shapes, amounts, seconds = [], [], [], []
    for (what, data, weight, stride, padding, *_), time in rows:
        _, channels, height, width = data[:4]
        outputs, _, *kernel = weight[:4]
        out = [
            (length + 2 * pad - size) // step + 1 for length, pad, size, step in zip((height, width), padding, kernel, stride, strict=True)
        ]
        groups = channels if what.startswith("depthwise") else 1
        reduction = channels // groups * kernel[0] * kernel[1]
        columns = channels if groups > 1 else outputs
        elements = columns * out[0] * out[1]
        read, weights, written = 4.0 * channels * height * width, 4.0 * columns * reduction, 4.0 * elements
        ops.append("conv2d")
        shapes.append(hs.Shape(out[0] * out[1], columns, reduction, tuple(kernel), tuple(stride), groups))
        amounts.append((2.0 * elements * reduction, weights, read, written))
        seconds.append(time)
    flops, weights, read, written = np.array(amounts).T
    graph = hs.TaskGraph(
        [f"c{i}" for i in range(len(ops))], op=ops, shape=shapes, flops=flops, weight_bytes=weights, input_bytes=read, output_bytes=written
    )
    return Samples(name, graph, hs.Cluster([hs.costs.device("v100", launch_overhead=0.0)]), 1, np.array(seconds))


# ---------------------------------------------------------------------- fit


def predicted(model: Any, samples: Samples) -> Any:
    """Return the seconds by a cost model, [n]."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return model.durations(samples.graph, samples.cluster, [samples.batch])[:, 0, 0]


def fitted(samples: Sequence[Samples], name: str, about: dict[str, Any], classes: Sequence[str], fixed: dict[str, float]) -> Family:
    """Return the family whose constants minimise the deviations of the logarithms of seconds."""
    present = {kind for one in samples for kind in errors(hs.costs.Roofline(), [one]).kinds}
    classes = [kind for kind in classes if kind in present]
    scalars = [what for what in ("a", "am", "k0", "k1", "cache") if what not in fixed]
    limits = {"a": (1e-3, 30), "am": (1e-3, 100), "k0": (1e-1, 1e3), "k1": (100, 1e5), "cache": (1.0, 8.0)}
    starts = {"a": 1.0, "am": 0.1, "k0": 30.0, "k1": 1e4, "cache": 2.0}
    wide = ["other"] + [kind for kind in ("max_pool", "copy", "elementwise") if kind in classes]
    low = [1e-3] * len(classes) + [0.05] * len(wide) + [limits[what][0] for what in scalars]
    high = [EFFICIENT[name]] * len(classes) + [4.0] * len(wide) + [limits[what][1] for what in scalars]
    start = [0.7] * len(classes) + [0.7] * len(wide) + [starts[what] for what in scalars]

    def family(logs: Any) -> Family:
        values = np.exp(logs).tolist()
        efficiency = dict(zip(classes, values, strict=False))
        efficiency["other"] = min(value for kind, value in efficiency.items() if kind in DENSE)
        bandwidth = dict(zip(wide, values[len(classes) :], strict=False))
        rest = dict(zip(scalars, values[len(classes) + len(wide) :], strict=True))
        return Family(**about, efficiency=efficiency, bandwidth=bandwidth, error={"all": 1.0}, **rest, **fixed)

    known = [one.seconds > 0 for one in samples]

    def deviations(logs: Any) -> Any:
        model = Analytic(families={name: family(logs)})
        return np.concatenate([np.log(predicted(model, one)[own] / one.seconds[own]) for one, own in zip(samples, known, strict=True)])

    best = least_squares(deviations, np.log(start), bounds=(np.log(low), np.log(high)), loss="soft_l1", f_scale=0.2, diff_step=1e-4)
    return family(best.x)


def rounded(family: Family) -> Family:
    """Return a family with constants of four digits."""
    plain = msgspec.to_builtins(family)
    for what in ("efficiency", "bandwidth", "error"):
        plain[what] = {key: float(f"{value:.4g}") for key, value in plain[what].items()}
    for what in ("a", "am", "k0", "k1", "cache"):
        if what in plain:
            plain[what] = float(f"{plain[what]:.4g}")
    return msgspec.convert(plain, Family)


class Errors(NamedTuple):
    """Deviations of a model from measurements."""

    ratio: Any
    """Model divided by measured, [n]."""
    kinds: list[str]
    rank: float
    whole: dict[str, float]
    """By network, the sum of the model divided by that of the measurements."""

    @property
    def median(self) -> float:
        """Median of the relative error."""
        return float(np.median(np.abs(self.ratio - 1)))

    @property
    def most(self) -> float:
        """The relative error that 90 % do not exceed."""
        return float(np.quantile(np.abs(self.ratio - 1), 0.9))

    def factor(self, kind: str | None = None) -> float:
        """Return the factor within which are 90 % of a class, or of all."""
        own = [kind is None or kind == other for other in self.kinds]
        return float(np.exp(np.quantile(np.abs(np.log(self.ratio[own])), 0.9)))


def errors(model: Any, samples: Sequence[Samples]) -> Errors:
    """Return the deviations of a model on samples."""
    ratios, kinds, guesses, times, whole = [], [], [], [], {}
    for one in samples:
        own = one.seconds > 0
        guess = predicted(model, one)[own]
        ratios.append(guess / one.seconds[own])
        guesses.append(guess)
        times.append(one.seconds[own])
        kinds += [class_of(op, shape) for op, shape, use in zip(one.graph.op, one.graph.shape, own, strict=True) if use]
        whole[f"{one.network}, batch {one.batch}"] = float(guess.sum() / one.seconds[own].sum())
    return Errors(np.concatenate(ratios), kinds, spearman(np.concatenate(guesses), np.concatenate(times)), whole)


class Scaled(NamedTuple):
    """A roofline with fitted constants."""

    efficiency: float
    bandwidth: float
    """Part of the memory bandwidth."""
    launch: float
    """Seconds of each operator, in addition to those of the device."""

    def durations(self, graph: hs.TaskGraph, cluster: hs.Cluster, batch_sizes: Sequence[int]) -> Any:
        """Return seconds per batch, as a cost model does."""
        (device,) = cluster.devices
        assert device.memory_bandwidth is not None
        peaks = {dtype: peak * self.efficiency for dtype, peak in device.peak_flops.items()}
        slower = dataclasses.replace(
            device,
            peak_flops=peaks,
            memory_bandwidth=device.memory_bandwidth * self.bandwidth,
            launch_overhead=device.launch_overhead + self.launch,
        )
        return hs.costs.Roofline(efficiency=1.0).durations(graph, hs.Cluster([slower]), batch_sizes)


def scaled(samples: Sequence[Samples]) -> Scaled:
    """Return the roofline whose constants minimise the deviations of the logarithms of seconds."""

    def deviations(logs: Any) -> Any:
        model = Scaled(*np.exp(logs).tolist())
        known = [one.seconds > 0 for one in samples]
        return np.concatenate([np.log(predicted(model, one)[own] / one.seconds[own]) for one, own in zip(samples, known, strict=True)])

    found = least_squares(deviations, np.log([0.5, 0.7, 1e-6]), loss="soft_l1", f_scale=0.2, diff_step=1e-4)
    return Scaled(*np.exp(found.x).tolist())


HEAD = ("held", "operators", "Roofline", "Roofline, fitted", "Analytic, fitted", "rank", "sum of a network")


def row(what: str, models: Sequence[Errors]) -> list[str]:
    """Return a row of the table."""
    best = models[-1]
    shown = [f"{percent(one.median)} / {percent(one.most)}" for one in models]
    ranks = ", ".join(f"{one.rank:.3f}" for one in models)
    return [what, str(len(best.ratio)), *shown, ranks, f"{min(best.whole.values()):.2f} to {max(best.whole.values()):.2f}"]


def halves(samples: Sequence[Samples], name: str, about: dict[str, Any], classes: Sequence[str], fixed: dict[str, float]) -> Any:
    """Return the rows of both ways to hold half of the networks, and the errors of all that were held."""
    networks = list(dict.fromkeys(one.network for one in samples))
    lines, held_errors = [], []
    for own in (networks[: len(networks) // 2], networks[len(networks) // 2 :]):
        train, held = ([one for one in samples if (one.network in own) == kept] for kept in (True, False))
        analytic = Analytic(families={name: fitted(train, name, about, classes, fixed)})
        found = [errors(model, held) for model in (hs.costs.Roofline(), scaled(train), analytic)]
        held_errors.append(found[-1])
        lines.append(row(", ".join(dict.fromkeys(one.network for one in held)), found))
    ratio = np.concatenate([one.ratio for one in held_errors])
    return lines, Errors(ratio, [kind for one in held_errors for kind in one.kinds], float("nan"), {})


def whole_networks() -> list[list[str]]:
    """Return the rows of whole networks on a V100: measured by others, and by the models."""
    cluster = hs.Cluster([hs.costs.device("v100", launch_overhead=LAUNCH)])
    lines = []
    for name, latencies in SEQUENTIAL.items():
        graph = hs.runtime.Program(*network(name, NETWORKS[name], 1), fuse=True).graph
        for batch, seconds in latencies.items():
            one = Samples(name, graph, cluster, batch, np.zeros(graph.n_tasks))
            models = [float(predicted(model, one).sum()) for model in (hs.costs.Roofline(), Analytic(families={"cuda float32": V100}))]
            shown = [f"{1e3 * value:.2f} ({value / seconds - 1:+.0%})".replace("%", " %") for value in models]
            lines.append([name, str(batch), f"{1e3 * seconds:.2f}", *shown])
    return lines


def with_errors(family: Family, held: Errors) -> Family:
    """Return a family with the factors within which are 90 % of the operators that were held."""
    kinds = [kind for kind in CLASSES if held.kinds.count(kind) >= 5]
    return rounded(msgspec.structs.replace(family, error={"all": held.factor(), **{kind: held.factor(kind) for kind in kinds}}))


def main(words: Sequence[str] | None = None) -> None:
    """Measure, fit, and publish the tables."""
    parser = figures.parser(__doc__)
    parser.add_argument("--write", action="store_true", help="write the constants of all networks to hetsched/costs/families.json")
    parser.add_argument("--profile", type=Path, help="a profile of the networks on one device named core, instead of measuring")
    parser.add_argument("--keep", type=Path, help="write the measured profile here")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the AutoTVM logs (default: %(default)s)")
    arguments: argparse.Namespace = figures.parse(parser, words, region=REGION)
    profile = measured(arguments.quick) if arguments.profile is None else hs.read(arguments.profile)
    assert isinstance(profile, hs.costs.Profile)
    if arguments.keep is not None:
        profile.write(arguments.keep)
    date = f"{datetime.date.today()}"
    families: dict[str, Family] = {}
    texts, numbers = [f"Taken on: {figures.where('torch')}, {figures.machine().rpartition(', ')[2]}."], {}
    how = "Median / 90 % of the relative errors of operators; rank correlation of the three models; model / measured of whole networks."

    cpu = samples_of(profile, arguments.quick)
    kinds = [kind for kind in CLASSES if any(kind in errors(hs.costs.Roofline(), [one]).kinds for one in cpu)]
    count = sum(int((one.seconds > 0).sum()) for one in cpu)
    about = {"source": f"benchmarks/costs.py on one core of {profile.device('core').device.kind}", "date": date, "n": count}
    lines, held = halves(cpu, "cpu float32", about, kinds, {"k1": 1e30})
    texts += ["### Operators on one core of a CPU", how, figures.table(HEAD, lines)]
    families["cpu float32"] = with_errors(fitted(cpu, "cpu float32", about, kinds, {"k1": 1e30}), held)
    numbers["cpu"] = {"median": held.median, "most": held.most}

    head = ("network", "batch", "measured, ms", "Roofline", "Analytic")
    texts += ["### Whole networks on a V100", f"Constants: {V100.source}.", figures.table(head, whole_networks())]
    if all((arguments.data / log(name)).is_file() for name in TUNED):
        gpu = tuned(arguments.data)
        as_it_is = errors(Analytic(families={"cuda float32": V100}), gpu)
        about = {"source": "AutoTVM logs", "date": date, "n": sum(len(one.seconds) for one in gpu)}
        lines, held = halves(gpu, "cuda float32", about, ["conv3x3", "conv1x1", "conv", "depthwise"], {})
        before = (
            f"With the constants above, for other kernels: {percent(as_it_is.median)} / {percent(as_it_is.most)}, rank {as_it_is.rank:.3f}."
        )
        texts += ["### Convolutions on a V100, tuned by AutoTVM, batch 1", how, figures.table(HEAD, lines), before]
        families["cuda float32"] = with_errors(V100, as_it_is)
        numbers["v100"] = {"median": held.median, "most": held.most}
    else:
        texts.append(f"AutoTVM logs: not in {arguments.data}.")
    if arguments.write:
        FAMILIES.write_bytes(msgspec.json.format(msgspec.json.encode(families), indent=1) + b"\n")
        print(f"written to {FAMILIES}")
    figures.publish(arguments, REGION, "\n\n".join(texts), numbers)


if __name__ == "__main__":
    main()
