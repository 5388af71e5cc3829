"""Ranks that a launcher has started: here each is a thread of this process, with a group of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs

torch = pytest.importorskip("torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this build of torch has no gloo", allow_module_level=True)

from hetsched.runtime import Executor, Program  # noqa: E402
from hetsched.runtime import executor as executors  # noqa: E402
from hetsched.runtime.checking import checked_places  # noqa: E402
from hetsched.runtime.engines import Launched  # noqa: E402
from hetsched.runtime.gloo import Group, Member, clock_offset, dist  # noqa: E402
from hetsched.testing.profiles import examples  # noqa: E402
from tests.runtime.acting import RAISE, Fault, order  # noqa: E402
from tests.runtime.test_executor import BOUND, _one_thread, runs  # noqa: E402, F401  # the fixture
from tests.runtime.test_ranks import obeying, obeys, ranked, value  # noqa: E402
from tests.torch_modules import arguments, tensors  # noqa: E402

LONG = 4 * BOUND
"""Seconds in which several captures and runs end."""


def together(function, size=2, seconds=BOUND):
    """Return the results, or errors, of a function of the rank on as many threads as ranks, which are launched together."""
    store, own, results = dist.HashStore(), threading.local(), [None] * size

    class Here(Launched):
        def __init__(self):
            self.rank, self.size, self.store = own.rank, size, dist.PrefixStore(str(own.made), store)
            own.made += 1

    def call(rank):
        own.rank, own.made = rank, 0
        try:
            results[rank] = function(rank)
        except BaseException as error:
            results[rank] = error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executors, "Launched", Here)
        patch.setattr(executors, "launched", lambda: True)
        threads = [threading.Thread(target=call, args=(rank,), daemon=True) for rank in range(size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(seconds)
        assert not any(thread.is_alive() for thread in threads), f"it took longer than {seconds} s"
    return results


# ---------------------------------------------------------------------- results


@pytest.mark.slow
@given(drawn=ranked(runs(2)))
@examples(4)
def test_the_result_is_on_one_rank(drawn):
    module, program, problem, decision, ranks = drawn
    args = arguments(problem.inputs)
    with torch.no_grad():
        wanted = module(*args)

    def call(rank):
        devices = dict.fromkeys(problem.cluster.names, 1)
        with Executor(program, None, decision, devices=devices, problem=problem, fold=False, engine="gloo", ranks=ranks) as run:
            results = [run(*args) for _ in range(2)]
            streamed = list(run.stream([args] * 5, 3))
            timeline = run.measure(*args, runs=2)
            assert hs.runtime.verify_run(problem, timeline) == []
            return results + streamed

    made = together(call, seconds=LONG)
    assert [len(own) for own in made] == [7, 7], made
    for one, other in zip(*made, strict=True):
        assert (one is None) != (other is None)
        for own, right in zip(tensors(other if one is None else one), tensors(wanted), strict=True):
            assert torch.equal(own, right)


def test_the_decision_of_rank_0_counts():
    program, problem, _ = obeys()

    def call(rank):
        device = np.zeros(program.graph.n_tasks, int) + rank  # the ranks would disagree
        device[0] = 1 - rank
        decision = hs.Decision.whole(problem, device, program.graph.topological_order)
        with Executor(program, None, decision, devices={"d0": 1, "d1": 1}, problem=problem, engine="gloo") as run:
            assert run.decision.device.sum() == 1
            return run(order())

    results = together(call)
    assert [None if result is None else value(result) for result in results] == [6, None]


def test_a_measurement_has_the_times_of_all_ranks_on_each():
    def call(rank):
        with obeying("gloo") as run:
            timeline = run.measure(order(), runs=3)
            return timeline, run.profiled(run.problem)

    (one, own), (other, same) = together(call)
    assert np.array_equal(one.durations, other.durations)
    assert np.array_equal(own.durations, same.durations)
    assert hs.verify(one.problem(own), one.schedule) == []


# ---------------------------------------------------------------------- hosts


@pytest.mark.parametrize("several", [False, True])
def test_a_host_needs_memory_and_cores_for_its_own_devices(several, monkeypatch):
    monkeypatch.setattr(Launched, "hosts", property(lambda own: [str(rank * several) for rank in range(own.size)]))
    with obeying("threads") as run:
        needed = float((run.plan.peak_bytes - run.plan.weight_bytes).max())
        sent = 2 * sum(run.plan.values[send.value].bytes for send in run.plan.sends)
    monkeypatch.setattr(executors, "free_memory", lambda: (needed + sent) / 0.9)  # enough for one device, not for both
    results = together(lambda rank: obeying("gloo").close())
    for result in results:
        assert result is None if several else isinstance(result, hs.UnsupportedFeature), result
    given = ["d0", "d1"], {"d0": 1, "d1": [10**6]}, [True, not several]
    if several:
        assert checked_places(*given)[1].cores == {10**6}
    else:
        with pytest.raises(hs.InvalidProblem, match=r"device 'd1' has the cores \[1000000\]; this process has"):
            checked_places(*given)


# ---------------------------------------------------------------------- clocks


def test_stamps_of_hosts_with_other_clocks_are_made_one(monkeypatch):
    """Rank 1's stamps are an hour ahead; on one host they would be taken as they are."""
    ahead = 3_600_000_000_000
    monkeypatch.setattr(Group, "exchange", lambda group, key, text: [str(rank) for rank in range(group.size)])
    turn_of, ran = Member._turn_of, Member._merge

    def merge(member, turn):
        if member.group.rank == 1:
            for name in ("start", "finish", "posted", "seen", "ended"):
                setattr(turn, name, [stamp + ahead if stamp > 0 else stamp for stamp in getattr(turn, name)])
            turn.began += ahead
        ran(member, turn)

    def clock_of(group):
        return (lambda: executors.time.perf_counter_ns() + ahead) if group.rank else executors.time.perf_counter_ns

    offset = Group.offset

    def offset_of(group, timeout):
        group.clock = clock_of(group)
        return offset(group, timeout)

    monkeypatch.setattr(Member, "_merge", merge)
    monkeypatch.setattr(Member, "_align", lambda member: None)
    monkeypatch.setattr(Group, "offset", offset_of)
    assert turn_of is Member._turn_of

    def call(rank):
        with obeying("gloo") as run:
            return run.measure(order(), runs=3)

    one, other = together(call)
    assert one.makespan < BOUND
    assert np.array_equal(one.makespans, other.makespans)
    assert 0 < one.clock_error < BOUND


@given(
    offset=st.integers(-(10**12), 10**12), trips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=50)
)
@examples(100)
def test_the_offset_of_clocks_is_within_its_error(offset, trips):
    pings, now = [], 0
    for there, back in trips:
        pings.append((now, now + there + offset, now + there + back))
        now += there + back
    estimate, error = clock_offset(pings)
    assert abs(estimate - offset) <= 1e9 * error + 1
    assert error == min(there + back for there, back in trips) / 2e9


# ---------------------------------------------------------------------- faults and refusals


@pytest.mark.parametrize("number", [0, 4])
def test_a_rank_that_gives_up_ends_the_others(number):
    def call(rank):
        with obeying("gloo") as run:
            try:
                run(order(number, RAISE))
                run(order())  # a rank that needs nothing of the other one ends the first run well
            except BaseException as error:
                with pytest.raises(hs.UnsupportedFeature, match="an earlier run of these ranks has failed; start the processes again"):
                    run(order())
                with pytest.raises(hs.UnsupportedFeature, match="these ranks were started from outside"):
                    run.restart()
                return error

    errors = together(call)
    failed = number // 3
    assert isinstance(errors[failed], Fault)
    other = errors[1 - failed]
    assert isinstance(other, hs.PeerLost)
    assert other.rank == failed
    assert f"rank {failed} has given up: Fault: on purpose; start the processes again" in str(other)


def test_a_rank_that_hangs_ends_the_others():
    wake = threading.Event()

    def call(rank):
        if rank == 1:
            with obeying("gloo") as run:
                wake.wait(BOUND)
                return run
        with obeying("gloo", timeout=0.5) as run:
            try:
                return run(order())
            finally:
                wake.set()

    first, _ = together(call)
    assert isinstance(first, hs.Timeout)
    assert "'d0' waits for" in str(first)


def test_a_rank_that_is_cancelled_ends_the_others():
    wake = threading.Event()

    def call(rank):
        with obeying("gloo") as run:
            if rank == 0:  # it waits for the other one
                threading.Timer(0.3, run.cancel).start()
            else:
                wake.wait(BOUND)
            try:
                run(order())
                run(order())  # a rank that needs nothing of the other one ends the first run well
            except BaseException as error:
                return error
            finally:
                wake.set()

    first, other = together(call)
    assert isinstance(first, hs.Cancelled), first
    assert isinstance(other, hs.PeerLost), other
    assert "rank 0 has given up: Cancelled: the run was cancelled; start the processes again" in str(other)


@pytest.mark.slow
@pytest.mark.parametrize("hung", [0, 1])
def test_a_rank_that_hangs_after_its_last_task_ends_the_others(monkeypatch, hung):
    """It neither sends what the result reads nor takes it; the other one has a value of which the message is too large to be stored."""
    wake, collect = threading.Event(), Member._collect

    def late(member, turn):
        if member.group.rank == hung:
            wake.wait(BOUND)
        collect(member, turn)

    monkeypatch.setattr(Member, "_collect", late)

    class Both(torch.nn.Module):
        def forward(self, x):
            return x.relu(), x.relu().sigmoid()

    program = Program(Both(), torch.ones(1, 2**23))
    problem = hs.Problem(program.graph, hs.Cluster(["d0", "d1"], bandwidth=1e9), durations=np.ones((program.graph.n_tasks, 2)))
    device = np.arange(program.graph.n_tasks) // (program.graph.n_tasks - 1)
    decision = hs.Decision.whole(problem, device, program.graph.topological_order)

    def call(rank):
        with Executor(program, None, decision, devices={"d0": 1, "d1": 1}, problem=problem, engine="gloo", timeout=4.0) as run:
            try:
                return run(torch.ones(1, 2**23))
            finally:
                if rank != hung:
                    wake.set()

    other = together(call)[1 - hung]
    assert isinstance(other, hs.PeerLost), other
    assert f"rank {hung} is lost: Timed out waiting" in str(other)
    assert str(other).endswith("start the processes again")


@pytest.mark.slow
@pytest.mark.parametrize("what", ["weights", "fold"])
def test_ranks_that_differ_are_refused(what):
    programs = []
    for rank in range(2):
        torch.manual_seed(rank if what == "weights" else 0)
        programs.append(Program(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()).eval(), torch.ones(1, 3)))

    def call(rank):
        program = programs[rank]
        problem = hs.Problem(program.graph, hs.Cluster(["d0", "d1"], bandwidth=1e9), durations=np.ones((program.graph.n_tasks, 2)))
        decision = hs.Decision.whole(problem, np.arange(program.graph.n_tasks) % 2, program.graph.topological_order)
        fold = what == "fold" and rank == 1
        return Executor(program, None, decision, devices={"d0": 1, "d1": 1}, problem=problem, engine="gloo", fold=fold)

    for error in together(call):
        assert isinstance(error, hs.InvalidProblem), error
        assert f"rank 1 has another {what} than rank 0" in str(error)
        assert str(error).endswith("all ranks need the same module with the same weights, arguments and options")


# ---------------------------------------------------------------------- torchrun

SCRIPT = """
import torch
from hetsched.runtime import Executor
from tests.runtime.acting import order
from tests.runtime.test_ranks import obeying, value
from tests.runtime import acting
import sys
import os
import signal
import threading

if sys.argv[1:] == ["fail"]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun ends the others when one has failed; here they say why they fail
with obeying("gloo") as run:
    made = run(order())
    timeline = run.measure(order(), runs=2)
    assert not [one for one in threading.enumerate() if one.name.startswith("hetsched-from-")], "one may abort the process at its end"
    text = f"rank {os.environ['RANK']} {made is not None and value(made)} {timeline.durations.shape}\\n"
    os.write(1, text.encode())  # at once, so that those of two ranks are not mixed
    if sys.argv[1:] == ["fail"]:
        run(order(4, acting.EXIT))
"""


@pytest.mark.slow
@pytest.mark.parametrize("fail", [False, True])
def test_torchrun(tmp_path, fail):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        command + ["fail"] * fail, capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": root}, check=False
    )
    assert (done.returncode != 0) == fail, done.stderr
    assert "rank 0 6.0 (2, 8)" in done.stdout
    assert "rank 1 False (2, 8)" in done.stdout
    if fail:
        # which of these the system says depends on what rank 1 had not read when it ended
        ended = r"hetsched\.errors\.PeerLost: rank 1 is lost: .*(Connection closed by peer|Connection reset by peer|Broken pipe)"
        assert re.search(ended, done.stderr), done.stderr
