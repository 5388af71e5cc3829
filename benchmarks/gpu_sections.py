"""The sections of gpu.py, as steps that return lines."""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import json
import math
import multiprocessing
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gpu_children
import gpu_tools as tools
import numpy as np
import torch
from gpu import Records, Row, Step
from gpu_plans import plans
from gpu_tools import cores, line, planted
from truth import SIZES, network

import hetsched as hs
from hetsched.models.ios import dynamic_program as ios
from hetsched.runtime.places import Where, kind, place, software
from hetsched.runtime.profiling import ceilings, hand_offs

RUNS, QUICK_RUNS = 30, 3
WARM_UP = 5
PIXELS = 48
"""Height and width of images with --quick."""
TOKENS, WIDTH = 128, 1024
QUICK_TOKENS, QUICK_WIDTH = 16, 64
COPIED = tuple(4**k for k in range(5, 14))
"""Bytes of copies: 1 KB to 64 MB."""
QUICK_COPIED = (4**5, 4**9)
ALIKE = 1e-4
"""The largest deviation of outputs, as a part of the largest number, of merged convolutions and of other kernels."""
FINALISTS = 5
COMPILING, FULL = 90.0, 900.0
"""Seconds of a process that compiles; with --full."""
SOLVING = 10.0
COMPILED = 300.0
"""Seconds in which the kernels of the methods have to be compiled."""
GLOO = 60.0
"""Seconds in which two processes have to end."""
METHODS = ("heft", "annealing")
"""Methods without a solver."""


class Bench:
    """What the sections have in common.

    Parameters
    ----------
    device : str
        Of torch.
    records : Records
        Where the ceilings are looked up.
    quick, full : bool
    """

    def __init__(self, device: str, records: Records, *, quick: bool, full: bool) -> None:
        self.device = place("gpu0", device).device
        tools.full_precision()
        self.name = "gpu0" if self.device.type == "cuda" else "cpu0"
        self.records, self.quick, self.full = records, quick, full
        self.deadline = self.share = math.inf
        facts = dict(software(self.device, fold=True))
        del facts["fold"]
        self.common = {"device": self.name, "software": ", ".join(f"{name} {value}" for name, value in facts.items()), "quick": quick}
        self.runs = QUICK_RUNS if quick else RUNS
        self.warmup = 1 if quick else WARM_UP

    @property
    def left(self) -> float:
        """Seconds until the section is over, at least 1."""
        return max(self.deadline - time.monotonic(), 1.0)

    def teams(self) -> dict[str, list[int]]:
        """Return the cores of CPU devices with 1, 4, and all threads but one; the first core launches."""
        own = cores()
        free = own[1:] or own
        sizes = {1} if self.quick else {1, min(4, len(free)), len(free)}
        return {f"cpu{size}": free[:size] for size in sorted(sizes)}

    def ceilings(self, name: str) -> hs.Device:
        """Return a device with the peaks that section 0 measured."""
        rows = [row for row in self.records.rows if row["what"] == "ceilings" and row["device"] == name]
        if not rows:
            raise LookupError(f"there are no ceilings of {name}: the environment section has not ended well")
        return device_of(rows[-1])

    def networks(self, names: Sequence[str]) -> list[str]:
        """Return networks; with --quick the smallest of them."""
        return [name for name in names if name in ("squeezenet", "decoder")][:1] if self.quick else list(names)

    def size(self, name: str) -> int:
        """Return height and width of the images of a network, or the tokens of the decoder."""
        if name == "decoder":
            return QUICK_TOKENS if self.quick else TOKENS
        return PIXELS if self.quick else SIZES.get(name, 224)

    def model(self, name: str, batch: int = 1) -> tuple[Any, Any]:
        """Return a module with weights on the CPU, and a random batch."""
        return model(name, self.size(name), batch)

    def program(self, name: str, device: str, fuse: bool) -> hs.runtime.Program:
        """Return a captured network on a device."""
        return captured(name, self.size(name), device, fuse)


@functools.cache
def captured(name: str, size: int, device: str, fuse: bool) -> hs.runtime.Program:
    """Return a captured network on a device."""
    module, x = model(name, size, 1)
    return hs.runtime.Program(module.to(device), x.to(device), fuse=fuse)


def model(name: str, size: int, batch: int) -> tuple[Any, Any]:
    """Return a module with weights on the CPU, and a random batch; the same in every process."""
    if name != "decoder":
        return network(name, size, batch)
    from hetsched.workloads.language import Block

    torch.manual_seed(0)
    width = WIDTH if size == TOKENS else QUICK_WIDTH
    return Block(width, max(1, width // 64)).eval(), torch.randn(batch, size, width)


def device_of(row: Row) -> hs.Device:
    """Return the device that a line of ceilings describes."""
    return hs.Device(
        row["device"],
        kind=row["kind"],
        family=row["family"],
        units=row["units"],
        cache_bytes=row["cache_bytes"],
        memory_bytes=row["memory_bytes"] or math.inf,
        peak_flops={"float32": row["flops"]},
        memory_bandwidth=row["bandwidth"],
        launch_overhead=row["launch"],
    )


# ---------------------------------------------------------------------- 0 environment


def environment(bench: Bench) -> Iterator[Step]:
    """What the machine is, how fast it can be, and the kernels of this package, compiled."""
    yield Step("facts", lambda: [facts(bench)])
    if bench.device.type == "cuda":
        yield Step("ceilings of gpu0", lambda: [of_gpu(bench)])
    for name, own in {"cpu0": cores()[:1], **bench.teams()}.items():
        yield Step(f"ceilings of {name}", functools.partial(of_cpu, bench, name, own))
    yield Step("kernels", compiled)


def facts(bench: Bench) -> Row:
    """Return what the machine says of itself."""
    query = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.limit,memory.total"
    shown = None
    if bench.device.type == "cuda" and shutil.which("nvidia-smi"):
        done = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True, timeout=30)
        if done.returncode == 0:
            shown = dict(zip(query.split(","), done.stdout.splitlines()[bench.device.index or 0].split(", "), strict=True))
    return line(
        "facts",
        None,
        kind=kind(bench.device),
        cpu=kind(torch.device("cpu")),
        cores=len(cores()),
        python=platform.python_version(),
        smi=shown,
        hetsched=hs.__version__,
        date=time.strftime("%Y-%m-%d", time.gmtime()),
    )


def compiled() -> list[Row]:
    """Compile what the other sections use, which takes a minute on a machine that has not run it before."""
    start = time.perf_counter()
    shapes = [hs.Shape(64, 64, 64, (1, 1), (1, 1))] * 3
    graph = hs.TaskGraph(
        ["a", "b", "c"],
        [("a", "b", 1.0), ("a", "c", 1.0)],
        op="conv2d",
        shape=shapes,
        flops=[1e6] * 3,
        output_bytes=[1e3] * 3,
        weight_bytes=[1e3] * 3,
    )
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1e9), durations=np.ones((3, 2, 1)), batch_sizes=[1], inputs=1)
    for method in METHODS:
        hs.solve(problem, method, evaluations=200, time_limit=COMPILED)
    cost = hs.costs.Contention(graph, hs.costs.device("v100"))
    for options in ({}, {"bound": cost.bound}, {"propose": cost}):
        hs.stages(graph, lambda tasks, strategy: cost(tasks, strategy), **options)
    hs.stages(graph, cost)
    return [line("kernels", [time.perf_counter() - start], statistic="once")]


def of_cpu(bench: Bench, name: str, own: Sequence[int]) -> list[Row]:
    """Return the ceilings of some cores."""
    profiler = hs.runtime.ModuleProfiler(torch.nn.ReLU(), torch.ones(1, 1), devices={name: list(own)})
    return [of(ceilings(profiler, profiler.devices[0]), name)]


def of_gpu(bench: Bench) -> Row:
    """Return the ceilings of a GPU: a product of matrices in float32, a copy, and the smallest operator."""
    device, size, runs = bench.device, 1024 if bench.quick else 8192, 10
    about = torch.cuda.get_device_properties(device)
    one, many = torch.ones(1, device=device), torch.rand(size, size, device=device)
    source, target = (torch.empty(2**20 if bench.quick else 2**28, device=device) for _ in range(2))
    product = min(tools.back_to_back(lambda: torch.mm(many, many), device, runs, 5))
    copy = min(tools.back_to_back(lambda: target.copy_(source), device, runs, 5))
    launch = min(tools.back_to_back(lambda: torch.relu(one), device, runs, 1000))
    return of(
        hs.Device(
            "gpu0",
            kind=about.name,
            family="cuda",
            units=about.multi_processor_count,
            cache_bytes=float(getattr(about, "L2_cache_size", 0)) or None,
            memory_bytes=float(about.total_memory),
            peak_flops={"float32": 2.0 * size**3 / product},
            memory_bandwidth=2.0 * 4 * source.numel() / copy,
            launch_overhead=launch,
        ),
        "gpu0",
    )


def of(device: hs.Device, name: str) -> Row:
    """Return the line of a device's ceilings; its seconds are those of a launch."""
    return line(
        "ceilings",
        [device.launch_overhead],
        name,
        device.kind,
        statistic="least",
        device=name,
        kind=device.kind,
        family=device.family,
        units=device.units,
        cache_bytes=device.cache_bytes,
        memory_bytes=None if math.isinf(device.memory_bytes) else device.memory_bytes,
        flops=device.peak_flops["float32"],
        bandwidth=device.memory_bandwidth,
        launch=device.launch_overhead,
    )


# ---------------------------------------------------------------------- 1 links


def links(bench: Bench) -> Iterator[Step]:
    """Copies between host and device, hand-offs between threads, and messages between processes."""
    memories = ("pinned", "pageable") if bench.device.type == "cuda" else ("pageable",)
    for memory in memories:
        for way in ("to the device", "from the device", "both ways"):
            yield Step(f"{memory}, {way}", functools.partial(copies, bench, memory, way))
    yield Step("hand-off", lambda: [hand_off(bench)])
    yield Step("gloo", functools.partial(gloo, bench))


def copies(bench: Bench, memory: str, way: str) -> list[Row]:
    """Return the times of copies of several sizes."""
    rows, device = [], bench.device
    cuda = device.type == "cuda"
    for size in QUICK_COPIED if bench.quick else COPIED:
        pairs = []
        for direction in ("to the device", "from the device"):
            if way in (direction, "both ways"):
                host = torch.empty(size, dtype=torch.uint8, pin_memory=memory == "pinned")
                here = torch.empty(size, dtype=torch.uint8, device=device)
                pairs.append((here, host) if direction == "to the device" else (host, here))
        streams = [torch.cuda.Stream(device) if cuda else None for _ in pairs]  # type: ignore[no-untyped-call]

        def run(pairs: Any = pairs, streams: Any = streams) -> None:
            for (target, source), stream in zip(pairs, streams, strict=True):
                with torch.cuda.stream(stream):
                    target.copy_(source, non_blocking=memory == "pinned")

        times, spent = tools.wall(run, device, bench.runs)
        rows.append(line("copy", times, bench.name, memory, way, size, memory=memory, way=way, bytes=size, cpu=float(np.median(spent))))
    return rows


def hand_off(bench: Bench) -> Row:
    """Return the time from a release of a lock by one thread until another, which waits for it, goes on."""
    first, second = (cores() * 2)[:2]
    times = hand_offs(place("first", [first]), place("second", [second]), 50 if bench.quick else 1000)
    return line("hand-off", times.tolist(), device="cpu0")


def gloo(bench: Bench) -> list[Row]:
    """Return the times of messages between two processes by gloo, and the CPU time of both."""
    if not torch.distributed.is_available():
        return [line("skipped", None, reason="torch has no distributed package")]
    sizes = QUICK_COPIED if bench.quick else COPIED
    context = multiprocessing.get_context("spawn")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        ends, processes = [], []
        for rank in range(2):
            here, there = context.Pipe(duplex=False)
            process = context.Process(
                target=gpu_children.messages, args=(rank, f"{folder}/store", sizes, bench.runs, GLOO / 2, there), daemon=True
            )
            process.start()
            there.close()
            ends.append(here)
            processes.append(process)
        try:
            end = time.monotonic() + GLOO
            told = [here.recv() for here in ends if here.poll(max(end - time.monotonic(), 0.0))]
        except EOFError:
            told = []
        finally:
            for process in processes:
                process.join(5.0 if len(ends) == 2 else 0.0)
                if process.is_alive():
                    process.kill()
                    process.join()
    if len(told) < 2:
        raise RuntimeError(
            f"the processes of gloo ended with {[process.exitcode for process in processes]}, or took longer than {GLOO:g} s"
        )
    rows = []
    for size, (times, giver), (_, taker) in zip(sizes, *told, strict=True):
        rows.append(line("message", times, "gloo", size, device="cpu0", bytes=size, cpu=giver, cpu_target=taker))
    return rows


# ---------------------------------------------------------------------- 2 operators


def operators(bench: Bench) -> Iterator[Step]:
    """Every different operator of several networks, on the device and on cores of the CPU."""
    names = bench.networks(("squeezenet", "googlenet", "inception_v3", "decoder", "randwire", "nasnet_a"))
    cuda = {"gpu0": str(bench.device)} if bench.device.type == "cuda" else {}
    places: list[tuple[str, Where, tuple[int, ...]]] = [(name, where, (1, 8, 32, 128)) for name, where in cuda.items()]
    places += [(name, own, (1, 8)) for name, own in sorted(bench.teams().items(), key=lambda item: -len(item[1]))]
    for name, where, sizes in places:
        for batch in (1,) if bench.quick else sizes:
            for net in names:
                yield Step(f"{net}, batch {batch}, {name}", functools.partial(of_network, bench, net, batch, name, where))


def of_network(bench: Bench, net: str, batch: int, name: str, where: Where) -> list[Row]:
    """Return the lines of the operators of a network with one batch size on one device."""
    device = bench.device if name == "gpu0" else torch.device("cpu")
    program = bench.program(net, str(device), False)
    _, x = bench.model(net)
    profiler = hs.runtime.ModuleProfiler(
        program, x.to(device), devices={name: where}, warmup=bench.warmup, repeats=bench.runs, time_limit=bench.left
    )
    recorder = hs.costs.Recorder(profiler)
    times = recorder.times(batch, name)
    known = {operator.digest: operator for operator in recorder.operators}
    count = [operator.digest for operator in recorder.operators]
    rows = []
    for time_of in times:
        operator = known[time_of.digest]
        if time_of.median is None or time_of.median == 0:
            continue  # inputs
        rows.append(
            {
                "what": "operator",
                "digest": time_of.digest,
                "device": name,
                "statistic": "median",
                "seconds": time_of.median,
                "spread": [time_of.q25, time_of.q75],
                "runs": time_of.runs,
                "cpu": time_of.cpu,
                "memory_bytes": time_of.memory_bytes,
                "batch": batch,
                "network": net,
                "tasks": count.count(time_of.digest),
                "op": operator.op,
                "text": operator.text,
                "flops": operator.flops,
                "bytes_accessed": operator.bytes_accessed,
                "weight_bytes": operator.weight_bytes,
                "shape": operator.shape,
            }
        )
    if not rows:
        raise RuntimeError("no operator was timed")
    return rows


# ---------------------------------------------------------------------- 3 engine


def engine(bench: Bench) -> Iterator[Step]:
    """What it takes to dispatch tasks, and to launch from several threads."""
    for net in bench.networks(("squeezenet", "inception_v3", "randwire")):
        yield Step(f"dispatch, {net}", functools.partial(dispatch, bench, net))
    yield Step("launches", functools.partial(launches, bench))


def dispatch(bench: Bench, net: str) -> list[Row]:
    """Return the seconds a task of the module itself, of compiled tasks, and of a CUDA graph of these, until the work is done."""
    device = bench.device
    program = bench.program(net, str(device), False)
    module, x = bench.model(net)
    module, x = module.to(device), x.to(device)
    tasks = hs.runtime.code.Compiled(program, fold=False)

    def own() -> Any:
        registers = tasks.start(program.inputs((x,), {}))
        tasks.run(registers)
        return tasks.result(registers)

    ways: dict[str, Callable[[], Any]] = {"eager": lambda: module(x), "compiled tasks": own}
    rows = []
    with torch.no_grad(), one_thread():
        expected = module(x)
        if device.type == "cuda":
            replay = graphed(own, device)
            ways["CUDA graph"] = replay
        else:
            rows.append(line("skipped", None, net, way="CUDA graph", reason="the device is a CPU"))
        differ = {way: tools.deviation(run(), expected) for way, run in ways.items()}
        times = tools.in_turn(ways, device, bench.runs, bench.warmup)
        n = program.graph.n_tasks
        for way, run in ways.items():
            about = {"network": net, "way": way, "tasks": n, "deviation": differ[way]}
            spent = float(np.median(tools.wall(run, device, bench.runs)[1]))
            rows.append(line("dispatch", [seconds / n for seconds in times[way]], net, way, bench.name, **about, cpu=spent / n))
    return rows


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Run torch in one thread within the context."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def graphed(run: Callable[[], Any], device: torch.device) -> Callable[[], Any]:
    """Return the replay of a CUDA graph of a function, which returns the same tensor each time."""
    beside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    beside.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(beside):
        for _ in range(3):
            run()
    torch.cuda.current_stream(device).wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=beside):
        made = run()

    def replay() -> Any:
        graph.replay()
        return made

    return replay


def launches(bench: Bench) -> list[Row]:
    """Return the seconds of a launch while 1, 2 and 4 threads launch, each on its own stream."""
    rows, device, each = [], bench.device, 200 if bench.quick else 5000
    cuda = device.type == "cuda"
    for count in (1, 2, 4):
        times = []
        for _ in range(bench.runs):
            barrier = threading.Barrier(count + 1)

            def launch(barrier: threading.Barrier = barrier) -> None:
                torch.set_num_threads(1)
                stream = torch.cuda.Stream(device) if cuda else None  # type: ignore[no-untyped-call]
                with torch.no_grad(), torch.cuda.stream(stream):
                    x = torch.zeros(1, device=device)
                    barrier.wait()
                    for _ in range(each):
                        x.add_(1)
                    barrier.wait()

            with one_thread():
                threads = [threading.Thread(target=launch, daemon=True) for _ in range(count)]
                for thread in threads:
                    thread.start()
                barrier.wait()
                start = time.perf_counter()
                barrier.wait()
                times.append((time.perf_counter() - start) / (each * count))
                tools.synchronize(device)
                for thread in threads:
                    thread.join()
        rows.append(line("launch", times, bench.name, count, threads=count))
    return rows


# ---------------------------------------------------------------------- 4 IOS


def stages(bench: Bench) -> Iterator[Step]:
    """Stages on the device: by the model, by measurements, and other ways to run a network."""
    names = bench.networks(("squeezenet", "inception_v3", "randwire", "nasnet_a"))
    cells = [(net, batch) for batch in ((1,) if bench.quick else (1, 32)) for net in names]
    rivals = [("decoder", 1)] if bench.quick else cells if bench.full else cells[:2]
    for net, batch in dict.fromkeys([*cells, *rivals]):
        name = f"{net}, batch {batch}"
        if (net, batch) in cells:
            bench.share = bench.left / max(1, sum(not bench.records.has("ios", f"{n}, batch {b}") for n, b in cells))
            yield Step(name, functools.partial(staged, bench, net, batch))
        if (net, batch) in rivals:
            yield Step(f"torch.compile, {name}", functools.partial(rival, bench, net, batch))


def staged(bench: Bench, net: str, batch: int) -> list[Row]:
    """Return the latencies of a network by schedules of stages and other ways, and the measured stages."""
    device = bench.device
    program = bench.program(net, str(device), True)
    module, x = bench.model(net, batch)
    module, x = module.to(device), x.to(device)
    graph = program.graph
    graphs = hs.costs.Contention.CUDA_GRAPHS if device.type == "cuda" else {}
    model = hs.costs.Contention(graph, bench.ceilings(bench.name), inputs=batch, **graphs)
    measured = hs.runtime.MeasuredStages(program, x, warmup=1 if bench.quick else 3, repeats=bench.runs if bench.quick else 10)
    asked: dict[tuple[tuple[str, ...], str], float] = {}

    def cost(tasks: tuple[str, ...], strategy: str) -> float:
        asked[tasks, strategy] = measured(tasks, strategy)
        return asked[tasks, strategy]

    limits: dict[str, Any] = {"blocks": cells_of_nasnet(graph) if net == "nasnet_a" else True}
    if net in ("randwire", "nasnet_a"):  # as in the paper; none of their convolutions can be merged
        limits |= {"group_size": 1, "strategies": "concurrent"}
    begun, share = time.monotonic(), bench.share
    schedules = {
        "sequential": ios.sequential(graph, cost),
        "greedy": ios.greedy(graph, cost),
        "IOS, CUDA_GRAPHS" if graphs else "IOS, model": hs.stages(graph, model, **limits),
    }
    schedules["IOS, finalists"] = hs.stages(graph, cost, propose=model, finalists=FINALISTS, time_limit=share / 4, **limits)
    schedules["IOS, measured"] = hs.stages(graph, cost, bound=measured.bound, time_limit=share / 2, **limits)
    searched = time.monotonic() - begun
    ways: dict[str, Callable[[], Any]] = {"eager": lambda: module(x)}
    rows = []
    with torch.no_grad():
        expected = module(x)
        seen = planted(module, x, expected)
        for way, schedule in schedules.items():
            ways[way] = functools.partial(hs.runtime.StagedProgram(program, schedule, graphs=False), x)
            if device.type == "cuda":
                ways[f"{way}, CUDA graph"] = functools.partial(hs.runtime.StagedProgram(program, schedule), x)
        if device.type == "cuda":
            ways["eager, CUDA graph"] = graphed(lambda: module(x), device)
        else:
            rows.append(line("skipped", None, net, batch, way="CUDA graphs", network=net, batch=batch, reason="the device is a CPU"))
        differ = {way: tools.deviation(run(), expected) for way, run in ways.items()}
        times = tools.in_turn(ways, device, bench.runs, bench.warmup)
    for way, seconds in times.items():
        staged_as = schedules.get(way.removesuffix(", CUDA graph"))
        about: Row = {
            "network": net,
            "batch": batch,
            "way": way,
            "deviation": differ[way],
            "planted": seen,
            "same": differ[way] <= ALIKE < seen,
        }
        if staged_as is not None:
            about |= {"stages": listed(graph, staged_as), "sum": staged_as.latency, "searched": searched}
        rows.append(line("latency", seconds, net, batch, way, bench.name, **about))
    index = graph.index
    rows.append(
        line(
            "stages",
            None,
            net,
            batch,
            network=net,
            batch=batch,
            graph=json.loads(hs.documents.encode(graph)),
            measured=[[[index[name] for name in tasks], way, seconds] for (tasks, way), seconds in asked.items() if math.isfinite(seconds)],
        )
    )
    return rows


def listed(graph: hs.TaskGraph, schedule: hs.StageSchedule) -> list[list[Any]]:
    """Return the tasks and the strategy of each stage, tasks in topological order."""
    place = {i: k for k, i in enumerate(graph.topological_order.tolist())}
    own = []
    for s, row in enumerate(schedule.stages):
        tasks: list[int] = [graph.index[name] for group in schedule.groups(s) for name in group]
        own.append([sorted(tasks, key=place.__getitem__), str(row["strategy"])])
    return own


def cells_of_nasnet(graph: hs.TaskGraph) -> Any:
    """Return the blocks of NASNet."""
    from hetsched.papers.ios.networks import cells

    return cells(graph)


def rival(bench: Bench, net: str, batch: int) -> list[Row]:
    """Return the latencies by `torch.compile`, in a process of its own that ends in time."""
    about: Row = {"network": net, "batch": batch}
    compiler = next(
        (name for name in (os.environ.get("CC", ""), os.environ.get("CXX", ""), "cc", "gcc", "g++") if shutil.which(name)), None
    )
    if compiler is None:
        return [line("skipped", None, net, batch, **about, way="torch.compile", reason="there is no C compiler")]
    limit = FULL if bench.full else min(COMPILING, bench.left) if bench.quick else COMPILING
    given = {"network": net, "batch": batch, "size": bench.size(net), "device": str(bench.device), "runs": bench.runs}
    script = Path(__file__).with_name("gpu.py")
    process = subprocess.Popen(
        [sys.executable, str(script), "--rival", json.dumps(given)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    reason = ""
    try:
        out, wrong = process.communicate(timeout=limit)
        if process.returncode:
            reason = (wrong.strip().splitlines() or [f"exit code {process.returncode}"])[-1][:300]
    except subprocess.TimeoutExpired:
        reason = f"it was not compiled and run within {limit:.0f} s"
        killed(process)
        out = process.communicate()[0]
    finally:
        killed(process)
    rows = []
    for told in (json.loads(text) for text in out.splitlines() if text.startswith('{"way"')):
        more = {"way": told["way"], "deviation": told["deviation"], "same": told["deviation"] <= ALIKE, "searched": told["compiling"]}
        rows.append(line("latency", told["seconds"], net, batch, told["way"], bench.name, **about, **more, stolen=told["stolen"]))
    return [*rows, line("skipped", None, net, batch, **about, way="torch.compile", reason=reason)] if reason else rows


def killed(process: subprocess.Popen[str]) -> None:
    """End a process and those that it started, which may compile."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


# ---------------------------------------------------------------------- 5 placements


def placements(bench: Bench) -> Iterator[Step]:
    """Networks placed on cores of the CPU and the device: forecast, run, and the parts of the error."""
    for net in bench.networks(("googlenet", "inception_v3", "randwire", "decoder")):
        own: list[Solved] = []  # by the first of the two steps
        yield Step(net, functools.partial(placed, bench, net, own))
        yield Step(f"calls, {net}", functools.partial(called, bench, net, own))


class Solved(NamedTuple):
    """A network, and its placement."""

    module: Any
    x: Any
    devices: dict[str, Where]
    problem: hs.Problem
    machine: hs.costs.Machine
    schedule: hs.Schedule


def solved(bench: Bench, net: str, known: list[Solved]) -> Solved:
    """Return a network that was profiled and placed, once."""
    if known:
        return known[0]
    module, x = bench.model(net)
    own = cores()
    devices: dict[str, Where]
    if bench.device.type == "cuda":
        team = own[1:] or own
        devices = {f"cpu{len(team)}": team, "gpu0": str(bench.device)}
    else:
        devices = {"cpu0": own[:1], "cpu1": own[-1:]}
    profile = hs.runtime.profile(module, x, devices=devices, batch_sizes=[1], warmup=bench.warmup, runs=max(3, bench.runs // 3))
    problem = profile.problem()
    schedule = hs.solve(problem, METHODS, time_limit=min(SOLVING, bench.left / 4) if not bench.quick else 1.0).schedule
    if schedule is None:
        raise RuntimeError("no schedule was made in time")
    known.append(Solved(module, x, devices, problem, profile.machine(), schedule))
    return known[0]


def placed(bench: Bench, net: str, known: list[Solved]) -> list[Row]:
    """Profile, solve, run and compare; each device alone beside it."""
    module, x, devices, problem, machine, schedule = solved(bench, net, known)
    with torch.no_grad():
        expected = module(x)
        seen = planted(module, x, expected)
    rows, alone = [], {}
    order = problem.graph.topological_order
    for k, name in enumerate(devices):
        decision = hs.Decision.whole(problem, np.full(problem.n_tasks, k, np.int64), order)
        with hs.runtime.Executor(module, x, hs.simulate(problem, decision), devices=devices, problem=problem) as run:
            differs = tools.deviation(run(x), expected)
            timeline = run.measure(x, runs=bench.runs, profile=False)
        alone[name] = timeline.makespan
        rows.append(of_run(net, name, timeline, differs, seen))
    with hs.runtime.Executor(module, x, schedule, devices=devices, problem=problem) as run:
        differs = tools.deviation(run(x), expected)
        timeline = run.measure(x, runs=bench.runs, machine=machine)
        comparison = hs.runtime.compare(run.profiled(problem), schedule.decision, timeline)
        placing, gathering = run.placing_seconds, run.gathering_seconds
    tasks = {name: int((schedule.batches.device == k).sum()) for k, name in enumerate(devices)}
    row = of_run(net, "placed", timeline, differs, seen)
    row |= {
        "forecast": comparison.forecast,
        "error": comparison.error,
        "engine": comparison.engine,
        "violations": len(comparison.violations),
        "replays": comparison.replays.makespan.tolist(),
        "tasks": tasks,
        "best": min(alone, key=alone.__getitem__),
        "method": ", ".join(METHODS),
        "placing": placing,
        "gathering": gathering,
    }
    return [*rows, row]


def called(bench: Bench, net: str, known: list[Solved]) -> list[Row]:
    """Return the seconds of calls, from arguments to results on the CPU, without clocks of tasks: on the last device alone, and placed."""
    module, x, devices, problem, _, schedule = solved(bench, net, known)
    order, last = problem.graph.topological_order, len(devices) - 1
    alone = hs.Decision.whole(problem, np.full(problem.n_tasks, last, np.int64), order)
    own = copy.deepcopy(module).to(bench.device)
    ways: dict[str, Callable[[], Any]] = {"module": lambda: own(x.to(bench.device)).cpu()}
    with contextlib.ExitStack() as stack, torch.no_grad():
        for way, decision in {"one device": alone, "placed": schedule.decision}.items():
            for graphs in (False, True) if bench.device.type == "cuda" else (False,):
                run = hs.runtime.Executor(module, x, decision, devices=devices, problem=problem, graphs=graphs)
                ways[f"{way}, CUDA graphs" if graphs else way] = functools.partial(stack.enter_context(run), x)
        expected = module(x)
        differ = {way: tools.deviation(call(), expected) for way, call in ways.items()}
        times = tools.in_turn(ways, bench.device, bench.runs, bench.warmup)
    return [line("call", times[way], net, way, network=net, way=way, deviation=differ[way], same=differ[way] <= ALIKE) for way in ways]


def of_run(net: str, way: str, timeline: hs.costs.Timeline, differs: float, seen: float) -> Row:
    """Return the line of runs."""
    more: Row = {"network": net, "way": way, "deviation": differs, "planted": seen, "same": differs <= ALIKE < seen}
    if not math.isnan(timeline.stolen):
        more["lost"] = timeline.stolen
    return line("run", timeline.makespans.tolist(), net, way, **more)


# ---------------------------------------------------------------------- 6 memory


def memory(bench: Bench) -> Iterator[Step]:
    """The peak of a plan beside the measured one, and what happens without enough memory."""
    for net in bench.networks(("googlenet", "inception_v3", "squeezenet")):
        yield Step(f"peak, {net}", functools.partial(peak, bench, net))
    yield Step("too little memory", functools.partial(drill, bench))


def alone(bench: Bench, net: str, batch: int) -> tuple[hs.runtime.Executor, Any, Any]:
    """Return an executor of a network on the device, the module, and its arguments."""
    module, x = bench.model(net, batch)
    program = bench.program(net, "cpu", False)
    n = program.graph.n_tasks
    cluster = hs.Cluster([bench.name], bandwidth=math.inf)
    problem = hs.Problem(program.graph, cluster, durations=np.ones((n, 1, 1)), batch_sizes=[batch], inputs=batch)
    decision = hs.Decision.whole(problem, np.zeros(n, np.int64), program.graph.topological_order)
    where: Where = str(bench.device) if bench.device.type == "cuda" else cores()[:1]
    given = module if bench.device.type == "cuda" else program
    return hs.runtime.Executor(given, x[:1], decision, devices={bench.name: where}, problem=problem), module, x


def peak(bench: Bench, net: str) -> list[Row]:
    """Return the bytes that a run allocates at most, by the plan and as measured."""
    batch = 4 if bench.quick else 32
    executor, _, x = alone(bench, net, batch)
    with executor as run:
        run(x)
        needed = float((run.plan.peak_bytes - run.plan.weight_bytes).sum())
        gc.collect()
        measured = resident(lambda: run(x), bench.device)
    if measured is None:
        return [line("skipped", None, net, network=net, reason="this system does not tell the peak of a process's memory")]
    return [line("peak", None, net, batch, statistic="most", network=net, batch=batch, planned=needed, measured=measured)]


def resident(run: Callable[[], object], device: torch.device) -> float | None:
    """Return the bytes by which a call raises the peak of memory above what is in use before it; None where that is not known."""
    if device.type == "cuda":
        held = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        run()
        torch.cuda.synchronize(device)
        return float(torch.cuda.max_memory_allocated(device) - held)
    try:
        Path("/proc/self/clear_refs").write_text("5")
        before = status("VmRSS")
        run()
        return status("VmHWM") - before
    except OSError:
        return None


def status(what: str) -> float:
    """Return bytes that the system says of this process."""
    row = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{what}:"))
    return 1024.0 * float(row.split()[1])


def drill(bench: Bench) -> list[Row]:
    """Run with too little memory, look at the error, and run again with enough."""
    if bench.device.type == "cuda":
        return [of_cuda(bench)]
    from hetsched.runtime.executor import free_memory

    net, free, found = "squeezenet", free_memory(), "none"
    if free is None:
        return [line("skipped", None, reason="this system does not tell its free memory")]
    executor, module, x = alone(bench, net, 1)
    with executor as run:
        one = float((run.plan.peak_bytes - run.plan.weight_bytes).sum())
        try:
            list(run.stream([x], depth=int(free / one) + 1))
        except hs.HetschedError as error:
            found = f"{type(error).__name__}: {error}"
        return [after(run, module, x, net, found)]


def after(run: hs.runtime.Executor, module: Any, x: Any, net: str, found: str) -> Row:
    """Return the line of a drill: what was raised, and whether the executor runs afterwards."""
    with torch.no_grad():
        differs = tools.deviation(run(x), module.cpu()(x))
    return line("drill", None, net, network=net, error=found, refused=found != "none", deviation=differs, same=differs <= ALIKE)


def of_cuda(bench: Bench) -> Row:
    """Run with a part of the GPU's memory."""
    net, device, found = "squeezenet", bench.device, "none"
    executor, module, x = alone(bench, net, 32)
    with executor as run:
        run(x)
        needed = float((run.plan.peak_bytes - run.plan.weight_bytes).sum())
        gc.collect()
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_allocated(device) + needed / 4) / total, device)
        try:
            run(x)
        except hs.HetschedError as error:
            found = f"{type(error).__name__}: {error}"
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0, device)
        return after(run, module, x, net, found)


STEPS: dict[str, Callable[[Bench], Iterator[Step]]] = {
    "environment": environment,
    "links": links,
    "operators": operators,
    "engine": engine,
    "ios": stages,
    "placements": placements,
    "memory": memory,
    "plans": plans,
}
