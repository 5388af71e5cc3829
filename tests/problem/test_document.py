"""Documents: equal to the bit after a round trip, and one line for any error."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched import documents
from hetsched.errors import LONGEST
from hetsched.problem import cluster
from hetsched.problem.problem import MOST_ITEMS
from hetsched.problem.validation import MOST_INPUTS
from tests.golden import topcuoglu


def awkward() -> hs.Problem:
    """Return a problem with everything a document can hold."""
    graph = hs.TaskGraph(
        ["a", "b", "c"],
        [("a", "b", 0.1), ("b", "c", 1e-99), ("a", "c", 0.0)],
        op=["in", "conv", "add"],
        weight_bytes=[0, 1 / 3, 2e18],
        input_bytes=5,
        output_bytes=[1, 2, 3],
        flops=[None, 2.0, 0.0],
        bytes_accessed=[1.0, np.nan, 3.0],
        colocation=[None, "g", "g"],
        devices=[None, None, ["y", "x"]],
    )
    devices = [hs.Device("x", "cpu", "n0", 1e10, {"float32": 1e12}, 1e11, 1e-6), hs.Device("y"), hs.Device("z")]
    cluster = hs.Cluster(devices, bandwidth=[[0, np.inf, 3], [4, 0, 0], [1, 0.1, 0]], latency=1e-7)
    durations = np.arange(18.0).reshape(3, 3, 2) / 7
    durations[0, 0, 0] = np.nan
    transfers = np.arange(27.0).reshape(3, 3, 3) / 3
    transfers[:, range(3), range(3)] = 0
    transfers[0, 1, 2] = np.nan
    return hs.Problem(
        graph,
        cluster,
        durations=durations,
        batch_sizes=[1, 2],
        inputs=2,
        batching="free",
        communication="port",
        memory="peak",
        transfers=transfers,
    )


def test_documents_round_trip_to_the_bit(tmp_path):
    problem = awkward()
    for value in (problem, problem.graph, problem.cluster, topcuoglu()):
        path = tmp_path / "document.json"
        documents.write(value, path)
        back = hs.read(path)
        assert back == value
        assert documents.encode(back) == path.read_bytes()


@pytest.mark.parametrize("together", [1, 2, 3, 4])
def test_a_document_made_in_parts_is_the_same_text(monkeypatch, together):
    """With explicit transfers and their order, several inputs a batch, absent numbers; some lists fill their last part and some do not."""
    problem = awkward()
    first = hs.solve(problem, "bheft")
    assert first.schedule is not None
    whole = hs.Decision.from_batches(problem, [("a", "y", [0, 1]), ("b", "x", [0]), ("b", "x", [1]), ("c", "x", [0, 1])])
    moves = hs.simulate(problem, whole).transfers
    order = np.column_stack([moves.edge, moves.source, moves.target])[::-1]
    ordered = hs.simulate(problem, hs.Decision(whole.task, whole.device, whole.item_ptr, whole.items, transfer_order=order))
    values = [problem, problem.graph, topcuoglu(), first, ordered, hs.solve(topcuoglu(), "heft")]
    texts = [documents.encode(value) for value in values]
    monkeypatch.setattr(documents, "TOGETHER", together)
    assert [documents.encode(value) for value in values] == texts
    assert [documents.decode(text) for text in texts] == values


@pytest.mark.parametrize("sizes", [[1], [1, 2]])
def test_a_problem_without_tasks_comes_back(sizes):
    nothing = hs.Problem(hs.TaskGraph([]), hs.Cluster(["a", "b"], bandwidth=1.0), durations=np.zeros((0, 2, len(sizes))), batch_sizes=sizes)
    assert documents.decode(documents.encode(nothing)) == nothing


def test_documents_meet_their_published_schema():
    for kind, value in (("problem", awkward()), ("graph", awkward().graph), ("cluster", awkward().cluster)):
        jsonschema.validate(json.loads(documents.encode(value)), documents.schema(kind))
    broken = json.loads(documents.encode(awkward()))
    broken["inputs"] = "many"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, documents.schema("problem"))
    with pytest.raises(hs.InvalidProblem, match="no document kind 'poem'"):
        documents.schema("poem")


@pytest.mark.parametrize("kind", ["graph", "cluster", "problem", "schedule", "solution", "stages", "timeline"])
def test_the_published_schemas_are_up_to_date(kind):
    published = Path(__file__).parents[2] / "docs" / "schema" / f"{kind}.json"
    assert json.loads(published.read_text()) == documents.schema(kind), f"run: hetsched schema {kind} > docs/schema/{kind}.json"


def test_a_hand_written_cluster_may_give_one_number_for_all_links():
    text = '{"format": "hetsched-cluster", "version": 1, "cluster": {"devices": [{"name": "a"}, {"name": "b"}], "bandwidth": 5}}'
    assert documents.decode(text) == hs.Cluster(["a", "b"], bandwidth=5.0)


GRAPH = '{"format": "hetsched-graph", "version": 1, "graph": {"tasks": [%s], "edges": [%s]}}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "truncated"),
        ('{"format": "hetsched-graph", "version": 1', "truncated"),
        ("not json", "malformed"),
        (b"\xff\xfe", "malformed"),
        ('{"format": "hetsched-graph\xe9"}'.encode("latin-1"), "document: "),
        ("[" * 10**6, "Expected `object`, got `array`"),
        ('{"format": "hetsched-graph", "more": ' + "[" * 10**6, "nested too deeply"),
        ('{"version": 1}', "missing required field `format`"),
        ('{"format": "poem", "version": 1}', "format 'poem' is not one of"),
        ('{"format": "hetsched-graph", "version": 99}', "version 99 of hetsched-graph"),
        ('{"format": "hetsched-graph", "version": 1}', "missing required field `graph`"),
        (GRAPH % ('{"name": "a", "wheight": 1}', ""), "unknown field `wheight` - at `$.graph.tasks[0]`"),
        (GRAPH % ('{"name": 3}', ""), "Expected `str`, got `int` - at `$.graph.tasks[0].name`"),
        (GRAPH % ('{"name": "a", "weight_bytes": "1"}', ""), "Expected `float`, got `str`"),
        (GRAPH % ('{"name": "a", "weight_bytes": NaN}', ""), "malformed"),
        (GRAPH % ('{"name": "a", "weight_bytes": 1e999}', ""), "out of range"),
        (GRAPH % ('{"name": "a", "weight_bytes": -1}', ""), "weight_bytes of task 'a' is -1.0"),
        (GRAPH % ('{"name": "a"}', '["a", "b", 1]'), "names 'b', which is no task"),
        (GRAPH % ('{"name": "a"}', '["a", "a", 1]'), "cycle: a -> a"),
        (GRAPH % ('{"name": "a"}', '["a"]'), "Expected `array` of length 3 - at `$.graph.edges[0]`"),
    ],
)
def test_every_wrong_document_gets_one_line(text, message):
    with pytest.raises(hs.InvalidProblem) as caught:
        documents.decode(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"durations": [[1, 2], [1, 2, 3], [1, 2, 3]]}, "rows of different lengths"),
        ({"durations": []}, "durations has shape [0]"),
        ({"inputs": 0}, "inputs is 0"),
        ({"batching": "never"}, "Invalid enum value 'never' - at `$.batching`"),
        ({"transfers": [[[0]]]}, "transfers has shape"),
        ({"batch_sizes": [1, 2, 3]}, "3 batch sizes"),
    ],
)
def test_problem_documents_are_checked_like_problems(change, message):
    data = json.loads(documents.encode(awkward())) | change
    with pytest.raises(hs.InvalidProblem) as caught:
        documents.decode(json.dumps(data))
    assert message in str(caught.value)


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("step", ["os.replace", "os.fsync"])
def test_a_failed_write_leaves_the_old_file_and_is_an_error(tmp_path, monkeypatch, step):
    path = tmp_path / "problem.json"
    topcuoglu().write(path)
    before = path.read_bytes()
    monkeypatch.setattr(step, full)
    with pytest.raises(OSError, match="No space left on device; the file is unchanged; make room, or name a file elsewhere") as caught:
        awkward().write(path)
    assert caught.value.filename == str(path)
    assert path.read_bytes() == before
    with pytest.raises(OSError, match="No space left on device; nothing is written"):
        awkward().write(tmp_path / "new.json")
    assert [child.name for child in tmp_path.iterdir()] == ["problem.json"], "no temporary file is left behind"


@pytest.mark.skipif(os.name != "posix", reason="modes and symbolic links of POSIX")
def test_a_file_keeps_its_mode_and_a_link_its_place(tmp_path):
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    umask = os.umask(0o027)
    try:
        topcuoglu().write(target)
    finally:
        os.umask(umask)
    assert target.stat().st_mode & 0o777 == 0o640, "a new file has the mode that the umask leaves"
    target.chmod(0o600)
    link.symlink_to("target.json")
    awkward().write(link)
    assert link.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o600
    assert hs.read(target) == awkward()
    broken = tmp_path / "broken.json"
    broken.symlink_to(tmp_path / "new.json")
    awkward().write(broken)
    assert broken.is_symlink()
    assert hs.read(tmp_path / "new.json") == awkward()


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="no devices")
def test_standard_output_is_written_to_and_not_replaced(tmp_path):
    script = "import hetsched as hs; print('before', flush=True); hs.Cluster(['a']); from hetsched.documents import write\n"
    script += "write(hs.Cluster(['a']), '/dev/stdout'); print('after')"
    for out in (tmp_path / "out.txt", None):
        with open(out, "a+b") if out else contextlib.nullcontext(subprocess.PIPE) as stream:
            done = subprocess.run([sys.executable, "-c", script], stdout=stream, check=True)
        words = (done.stdout if out is None else out.read_bytes()).split()
        assert words[0] == b"before"
        assert words[-1] == b"after"
        assert b'"hetsched-cluster"' in b"".join(words)


@pytest.mark.slow
def test_fifty_thousand_tasks_are_read_and_written(tmp_path):
    n = 50_000
    rng = np.random.default_rng(0)
    edges = np.sort(rng.integers(0, n, (150_000, 2)), axis=1)
    graph = hs.TaskGraph([f"task {i}" for i in range(n)], edges[edges[:, 0] < edges[:, 1]], output_bytes=rng.random(n) * 1e6, op="conv")
    problem = hs.Problem(graph, hs.Cluster(["a", "b", "c"], bandwidth=1e9), durations=rng.random((n, 3)))
    problem.write(tmp_path / "big.json")
    assert hs.read(tmp_path / "big.json") == problem


SCHEDULE = (
    '{"format": "hetsched-schedule", "version": 1, "schedule": {"tasks": ["a"], "devices": ["d"], "inputs": %s, "batches": '
    '[{"task": "a", "device": "d", "start": 0, "finish": 1, "inputs": [%s]}], "transfers": [%s]}}'
)
TRANSFER = '{"edge": %s, "source": 0, "target": 0, "start": 0, "finish": 1}'
PROBLEM = (
    '{"format": "hetsched-problem", "version": 1, "graph": {"tasks": [%s], "edges": []}, "cluster": {"devices": [{"name": "d"}]}, '
    '"durations": [%s], "batch_sizes": %s, "inputs": %s, "batching": "free"}'
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SCHEDULE % (1, 0, TRANSFER % 2**64), "`$.schedule.transfers[0].edge`"),
        (SCHEDULE % (2**63, 0, ""), "`$.schedule.inputs`"),
        (SCHEDULE % (1, 2**64, ""), "`$.schedule.batches[0].inputs[0]`"),
        (SCHEDULE % (10**9, 0, ""), "1000000000 inputs of 1 tasks: a schedule has from 0 to 10000000 pairs of the two"),
        (PROBLEM % ('{"name": "a"}', "[[1]]", "[1]", 2**64), "`$.inputs`"),
        (PROBLEM % (", ".join(f'{{"name": "{i}"}}' for i in range(20)), ", ".join(20 * ["[[1]]"]), "[1]", 10**6), "20 tasks and 0 edges"),
        (PROBLEM % ('{"name": "a"}', "[[1, 1]]", "[2, 4]", 999_999), "no way to process all 999999 inputs"),
        (
            PROBLEM % ('{"name": "a"}', "[[1]]", f"[{'1, ' * 10**5}1]", 1),
            "batch_sizes is [1, 1, 1, 1, 1, 1, ...]; give one or more distinct",
        ),
        (PROBLEM % ('{"name": "a"}', "[[1]]", f"[{'1, ' * 10**5}0]", 1), "batch size is 0"),
        (PROBLEM % ('{"name": "a", "weight_bytes": 1%s}' % ("0" * 400), "[[1]]", "[1]", 1), "out of range"),
        (GRAPH % (r'{"name": "\ud800"}', ""), "malformed"),
        ('{"format": "%s"}' % ("x" * 10**6), "format 'xxx"),
        (GRAPH % (f'{{"name": "a", "{"x" * 10**6}": 1}}', ""), "unknown field `xxx"),
    ],
)
def test_numbers_and_names_beyond_all_bounds_get_one_short_line(text, message):
    with pytest.raises(hs.HetschedError) as caught:
        documents.decode(text, documents.KINDS)
    assert message in str(caught.value)
    assert len(str(caught.value)) <= LONGEST


def test_a_million_inputs_in_any_number_of_batches_are_read():
    problem = documents.decode(PROBLEM % ('{"name": "a"}', "[[1, 1]]", "[2, 3]", 10**6))
    assert problem.inputs == 10**6


@pytest.mark.parametrize("batching", ["once", "free"])
@given(st.data())
def test_coverage_of_inputs_agrees_with_an_enumeration_of_batches(batching, data):
    inputs, size, members = (data.draw(st.integers(1, most)) for most in (9, 3, 2))
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True).map(sorted))
    absent = data.draw(st.lists(st.booleans(), min_size=members * size * len(sizes), max_size=members * size * len(sizes)))
    durations = np.where(np.array(absent).reshape(members, size, len(sizes)), np.nan, 1.0)
    graph = hs.TaskGraph([f"t{i}" for i in range(members)], colocation=["one"] * members)
    cluster = hs.Cluster([f"d{k}" for k in range(size)], bandwidth=1.0)

    def counts(i: int, k: int) -> set[int]:
        """Return the numbers of inputs of task i that device k can run."""
        supported = [b for x, b in enumerate(sizes) if np.isfinite(durations[i, k, x])]
        if batching == "once":
            return {0, *supported}
        sums = {0}
        for _ in range(inputs):
            sums |= {q + b for q in sums for b in supported if q + b <= inputs}
        return sums

    per_device = [set.intersection(*(counts(i, k) for i in range(members))) for k in range(size)]
    expected = any(sum(shares) == inputs for shares in itertools.product(*per_device))
    try:
        hs.Problem(graph, cluster, durations=durations, batch_sizes=sizes, inputs=inputs, batching=batching)
        accepted = True
    except hs.InvalidProblem:
        accepted = False
    assert accepted == expected


def test_too_many_devices_or_routes_are_refused(monkeypatch):
    with pytest.raises(hs.InvalidProblem, match="5000 devices; at most 4096"):
        hs.Cluster([f"d{k}" for k in range(5000)], bandwidth=1.0)
    rng = np.random.default_rng(0)
    bandwidth = rng.random((50, 50)) * (rng.random((50, 50)) < 0.5)  # nearly every route has a bottleneck of its own
    names = [f"d{k}" for k in range(50)]
    assert (hs.Cluster(names, bandwidth=bandwidth).route_bandwidth > 0).all()
    monkeypatch.setattr(cluster, "MOST_ROUTING", 10**6)
    with pytest.raises(hs.InvalidProblem, match="too many routes"):
        hs.Cluster(names, bandwidth=bandwidth).route_latency  # noqa: B018
    assert (hs.Cluster(names, bandwidth=np.round(bandwidth + 0.4)).route_bandwidth > 0).all(), "few bandwidths, few bottlenecks"


def test_a_file_without_an_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "LARGEST_DOCUMENT", 1000)
    with pytest.raises(hs.InvalidProblem, match="/dev/zero has more than the 1000 bytes"):
        hs.read("/dev/zero")
    with pytest.raises(hs.UnsupportedFeature, match="1000 are allowed"):
        awkward().write(tmp_path / "problem.json")
    assert not list(tmp_path.iterdir())


def test_the_reference_states_the_limits_that_are_kept():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "documents.md").read_text()
    for limit in (MOST_INPUTS, MOST_ITEMS, cluster.MOST_DEVICES):
        assert f" {limit:,} |" in page
    assert f"{documents.LARGEST_DOCUMENT >> 20} MiB" in page
    assert f"{cluster.MOST_ROUTING // 10**6} million steps" in page
    assert f"at most {LONGEST} characters" in page
