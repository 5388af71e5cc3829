"""Readers and writers of other people's formats: round trips, small files of each format, what is lost and what is refused."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from types import SimpleNamespace

import instances
import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

import hetsched as hs
from hetsched import frontends
from hetsched.errors import InvalidArgument, InvalidProblem, InvalidSchedule, MissingDependency, UnsupportedFeature
from hetsched.frontends.exchange import UNIT, sorted_edges
from hetsched.frontends.formats import FORMATS, names
from hetsched.testing.profiles import examples
from hetsched.testing.strategies import AMOUNTS, problems, task_graphs
from tests.frontends.format_files import DAGBENCH, DNN, DOT, FILES, FJSP, GXL, MOIRAI, NEEDS, SPLIT, STG, STG_COSTS, WFFORMAT


def installed(*packages: str) -> pytest.MarkDecorator:
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


EVERY = [pytest.param(name, marks=installed(*([NEEDS[name]] if name in NEEDS else []))) for name in FILES]


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(text, suffix=".json"):
        path = Path(f"x{suffix}")
        path.write_text(text)
        return path

    return write


def read(file, name):
    text, suffix, options = FILES[name]
    return frontends.read(file(text, suffix), **options)


def test_stg_without_and_with_costs(file):
    plain = read(file, "stg")
    problem = plain.problem
    assert problem.graph.names == ("t0", "t1", "t2", "t3")
    assert problem.graph.edges.tolist() == [[0, 1], [0, 2], [1, 3], [2, 3]]
    assert problem.durations[..., 0].tolist() == [[0, 0], [3, 3], [4.5, 4.5], [0, 0]]
    assert problem.cluster == hs.Cluster(["p0", "p1"], bandwidth=np.inf)
    assert plain.lost == ("comments: A comment; and more",)
    assert plain.reference.unit == UNIT
    for text in (STG_COSTS, "0\n0 2 0\n1 3 1 0 7\n"):  # a cost on the line of its task
        costs = frontends.read(file(text, ".stg"), processors=2).problem
        assert costs.transfer_times(0, 0, 1) == 7


def test_a_flexible_job_shop(file):
    shop = read(file, "fjsp")
    np.testing.assert_array_equal(shop.problem.durations[..., 0], [[3, 5], [np.nan, 2]])
    assert shop.problem.graph.op == ("job 3", "job 3")
    assert shop.problem.transfer_times(0, 0, 1) == 0
    assert shop.lost == ("1 slower of two options of an operation on one machine", "fields of the file: instance")


@installed("fjsplib")
def test_a_flexible_job_shop_as_text(file):
    shop = read(file, "fjs").problem
    np.testing.assert_array_equal(shop.durations[..., 0], [[3, 5], [np.nan, 2], [7, np.nan]])
    assert (shop.graph.op, shop.graph.edges.tolist()) == (("job 0", "job 0", ""), [[0, 1]])


@pytest.mark.parametrize("name", ["gxl", pytest.param("dot", marks=installed("pydot"))])
def test_auckland_with_a_schedule(file, name):
    made = read(file, name)
    assert made.problem == hs.Problem(
        hs.TaskGraph(["a", "b"], [("a", "b", 1)]), hs.Cluster(["p0", "p1"], bandwidth=1), durations=[[2, 2], [3, 3]]
    )
    assert hs.verify(made.problem, made.schedule) == []
    assert made.schedule.makespan == 6
    if name == "gxl":
        assert (made.reference.upper, made.lost) == (6, ("attributes of the graph: Expanded states",))


def test_processors_from_1_other_capitals_and_the_finish_of_a_task(file):
    text = GXL.replace("<int>1</int></attr></node>", "<int>2</int></attr></node>").replace(
        "<int>0</int></attr></node>", "<int>1</int></attr></node>"
    )
    text = text.replace("Number of processors", "Number of Processors").replace(
        '<node id="a">', '<node id="a"><attr name="Finish time"><int>2</int></attr>'
    )
    made, other = frontends.read(file(text, ".gxl")), read(file, "gxl")
    assert (made.problem, made.lost, made.schedule) == (other.problem, other.lost, other.schedule)
    with pytest.raises(InvalidProblem, match="node 'a' has the Finish time 9, but it starts at 0 with the Weight 2"):
        frontends.read(file(text.replace('time"><int>2<', 'time"><int>9<'), ".gxl"))
    with pytest.raises(InvalidProblem, match="Total schedule length is 7, but the starts and processors of its nodes take 6"):
        frontends.read(file(text.replace('length"><int>6<', 'length"><int>7<'), ".gxl"))


def test_a_schedule_for_another_number_of_processors_is_no_schedule(file):
    made = frontends.read(file(GXL, ".gxl"), processors=3)
    assert (made.schedule, made.reference.upper, made.problem.n_devices) == (None, None, 3)
    assert made.lost[0] == "attributes of the graph: Expanded states, Total schedule length"


OTHER_GXL = [
    ("<gxl>", '<!DOCTYPE gxl SYSTEM "http://www.gupro.de/GXL/gxl-1.0.dtd"><gxl xmlns:xlink="http://www.w3.org/1999/xlink">'),
    ("<gxl>", '<gxl xmlns="http://www.gupro.de/GXL/gxl-1.0.dtd">'),
    ('encoding="UTF-8"', 'encoding="ISO-8859-1" standalone="yes"'),
    ('edgemode="directed"', 'edgeids="true" hypergraph="false" edgemode="undirected"'),
    ('<edge from="a"', '<edge id="e" isdirected="true" from="a"'),
    ('<attr name="Weight"><int>2', '<attr name="Weight" kind="time"><attr name="unit"><string>s</string></attr><int> 2 '),
    ('<node id="b">', '<node id="b"><type href="task"/>'),
]
"""Parts of the GXL file and what other programs write in their place."""


@examples(30)
@given(chosen=st.sets(st.sampled_from(range(len(OTHER_GXL)))))
def test_gxl_of_another_program_is_the_same_problem(chosen):
    if 3 in chosen:
        chosen |= {4}  # then each edge says that it has a direction
    text = GXL
    for x in sorted(chosen):
        text = text.replace(*OTHER_GXL[x])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.gxl"
        path.write_text(text, encoding="latin-1")
        assert frontends.read(path).problem == frontends.auckland.read(path).problem == read_text(GXL, path).problem


def read_text(text, path, **options):
    path.write_text(text)
    return frontends.read(path, **options)


DOTS = [
    "strict digraph { node [Weight=2, shape=box]; a; node [Weight=3]; edge [Weight=1]; a -> b }",
    "digraph { subgraph cluster_0 { a [Weight=2] } subgraph { b [Weight=7]; b [Weight=3] } a:s -> b:p:n [Weight=1] }",
    'digraph g { // of another tool\n "a" [Weight=2]; {b [Weight=3]}; a -> {b} [Weight="1"] }',
]


@installed("pydot")
@pytest.mark.parametrize("text", DOTS)
def test_dot_of_another_tool_is_the_same_problem(file, text):
    assert frontends.read(file(text, ".dot"), processors=2).problem == read(file, "dot").problem


@installed("pydot")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("graph { a [Weight=2]; b [Weight=3]; a -- b [Weight=1] }", "has edges without a direction"),
        ("strict digraph { node [Weight=2]; edge [Weight=1]; a -> b; a -> b }", "has an edge twice in a strict graph"),
    ],
)
def test_dot_of_another_kind_is_refused(file, text, said):
    with pytest.raises(InvalidProblem, match=said):
        frontends.read(file(text, ".dot"), processors=2)


@installed("pydot")
def test_edges_of_groups_in_dot_join_all_their_nodes(file):
    text = 'digraph { node [Weight=1]; "node" -> {b; {c -> d}} -> "x:y" [Weight=2] ; }'
    problem = frontends.read(file(text.replace("c -> d", "c -> d [Weight=5]"), ".dot"), processors=1).problem
    assert problem.graph.names == ("node", "b", "c", "d", "x:y")
    assert problem.graph.edges.tolist() == [[2, 3], [0, 1], [0, 2], [0, 3], [1, 4], [2, 4], [3, 4]]
    assert problem.graph.edge_bytes.tolist() == [5, 2, 2, 2, 2, 2, 2]


@pytest.mark.parametrize(("text", "suffix"), [(GXL, ".gxl"), pytest.param(DOT, ".dot", marks=installed("pydot"))])
def test_the_attribute_with_the_times_may_have_another_name(file, text, suffix):
    other = frontends.read(file(text.replace("Weight", "cost"), suffix), processors=2, weight="cost")
    assert other == frontends.read(file(text, suffix), processors=2)


def test_comments_of_stg_may_be_in_any_encoding(file):
    path = file(STG, ".stg")
    path.write_bytes(STG.encode() + "# \u7814\u7a76\n".encode("shift-jis"))
    assert frontends.read(path, processors=2).problem == read(file, "stg").problem


def test_dagbench_and_objects_of_saga(file):
    made = read(file, "dagbench")
    problem = made.problem
    assert problem.durations[..., 0].tolist() == [[2, 1], [4, 2]]
    assert problem.transfer_times(0, 1, 0) == 0.75
    assert made.lost == ("name: tiny",)
    text = DAGBENCH.replace('"cost": 2', '"cost": 2, "memory": 9').replace('"speed": 4}', '"speed": 4, "latency": 1}')
    assert frontends.read(file(text)).lost == ("name: tiny", "fields of task_graph.tasks: memory", "fields of network.edges: latency")

    def network(*edges):
        nodes = [SimpleNamespace(name="y", speed=2), SimpleNamespace(name="x", speed=1)]
        return SimpleNamespace(nodes=nodes, edges=[SimpleNamespace(source=one, target=two, speed=rate) for one, two, rate in edges])

    graph = SimpleNamespace(
        tasks=[SimpleNamespace(name="b", cost=4), SimpleNamespace(name="a", cost=2)],
        dependencies=[SimpleNamespace(source="a", target="b", size=3)],
    )
    links = [("x", "y", 4.0), ("x", "x", np.inf)]
    assert frontends.read(SimpleNamespace(task_graph=graph, network=network(*links))).problem == problem
    assert frontends.saga.read(graph, network(*links, ("y", "y", 1e9))).lost[0].startswith("speeds of links of a node to itself")
    apart = frontends.saga.read(graph, network(("x", "y", 0.0))).problem
    assert np.isnan(apart.transfers[0, 0, 1])
    assert apart.transfer_times(0, 0, 1) == np.inf


def test_a_recorded_workflow(file):
    made = read(file, "wfformat")
    problem = made.problem
    assert problem.durations[..., 0].tolist() == [[4, 2], [6, 6]]  # the second task has no machine, so no clock
    assert (problem.graph.op, problem.graph.edge_bytes.tolist()) == (("sort", ""), [30])
    assert made.lost == (
        "coreCount above 1 of 1 tasks: a device runs one task at a time",
        "files that no task writes",
        "fields of the file: name",
        "fields of workflow.specification.tasks: name",
        "fields of workflow.execution: executedAt, makespanInSeconds",
        "fields of workflow.execution.tasks: avgCPU, memoryInBytes",
        "fields of workflow.execution.machines.cpu: coreCount",
    )
    for old, new, said in (
        ('["m"]', '["m", "n"]', "all machines but the first of 1 tasks"),
        (
            '{"id": "b_2", "run',
            '{"id": "c_3", "runtimeInSeconds": 1}, {"id": "b_2", "run',
            "runtimes of tasks that are not in specification.tasks",
        ),
        ('"children": ["b_2"]', '"children": []', "that a task reads what another writes that is not its parent"),
    ):
        apart = WFFORMAT.replace(old, new).replace('"parents": ["a_1"]', '"parents": []' if "children" in old else '"parents": ["a_1"]')
        assert said in frontends.read(file(apart), bandwidth=10.0).lost
    twice = WFFORMAT.replace('{"id": "mid", "size', '{"id": "in", "sizeInBytes": 6}, {"id": "mid", "size')
    with pytest.raises(InvalidProblem, match="a file has two sizes in specification.files; give one for each"):
        frontends.read(file(twice), bandwidth=10.0)
    cluster = hs.Cluster(["n", "z"], bandwidth=3.0)
    other = frontends.read(file(WFFORMAT.replace('"1.5"', '"1.6"')), cluster=cluster).problem
    assert other.durations[..., 0].tolist() == [[2, 4], [6, 6]]
    unknown = '"nodeName": "n", "cpu": null', '"id": "b_2", "command": null, "machines": null'  # null is as if it were left out
    text = WFFORMAT.replace('"nodeName": "n", "cpu": {"speedInMHz": 2000}', unknown[0]).replace('"id": "b_2", "run', f'{unknown[1]}, "run')
    assert frontends.read(file(text), bandwidth=1.0).problem.durations[..., 0].tolist() == [[4, 4], [6, 6]]


def test_a_profiled_network_of_dnn_partitioning(file):
    made = read(file, "dnn-partitioning")
    problem = made.problem
    assert problem.cluster.names == ("accelerator0", "accelerator1", "host0")
    np.testing.assert_array_equal(problem.durations[..., 0], [[1, 1, 10], [np.nan, np.nan, 2]])
    assert problem.transfer_times(0, 0, [0, 1, 2]).tolist() == [0, 1.5, 0.75]  # parallel edges are added
    assert problem.graph.colocation == ("colour 5", None)
    assert made.lost == ("fields of nodes: isBackwardNode, name",)
    placed = frontends.dnn_partitioning.read_split(file(SPLIT, ".split"), problem)
    assert placed == {"n0": "accelerator1", "n7": "host0"}
    frontends.dnn_partitioning.write_split(problem, placed, "again.split")
    assert frontends.dnn_partitioning.read_split("again.split", problem) == placed
    for text, message in ((SPLIT.replace("[0]", "[0, 0]"), "node 0 on accelerator1"), (SPLIT.replace("[0]", "[1]"), "has node 1 which")):
        with pytest.raises(InvalidProblem, match=message):
            frontends.dnn_partitioning.read_split(file(text, ".split"), problem)
    with pytest.raises(UnsupportedFeature, match="cannot state task 'n7' on 'gpu'"):
        frontends.dnn_partitioning.write_split(problem, {**placed, "n7": "gpu"}, "again.split")


def test_a_profiled_graph_of_moirai(file):
    made = read(file, "moirai")
    np.testing.assert_array_equal(made.problem.durations[..., 0], [[1, 2], [3, np.nan]])
    assert made.problem.transfers.tolist() == [[[0, 6], [7, 0]]]
    assert made.lost == ("fields of the file: source",)


def test_a_graph_of_networkx_with_durations():
    networkx = pytest.importorskip("networkx")
    graph, cluster = networkx.DiGraph(), hs.Cluster(["x", "y"], bandwidth=2.0)
    graph.add_node("a", durations={"x": 1.0}, colour="red")
    graph.add_node("b", durations={"x": 2.0, "y": 3.0})
    graph.add_edge("a", "b", bytes=4.0)
    made = frontends.read(graph, cluster=cluster)
    np.testing.assert_array_equal(made.problem.durations[..., 0], [[1, np.nan], [2, 3]])
    assert made.lost == ("attributes of nodes: colour",)
    graph.graph["deadline"] = 9.0
    assert frontends.read(graph, cluster=cluster).lost == ("attributes of the graph: deadline", "attributes of nodes: colour")
    del graph.graph["deadline"]
    graph.edges["a", "b"]["weight"] = 3.0
    with pytest.raises(InvalidProblem, match="edges of the graph have an attribute 'weight', which is none of bytes"):
        frontends.read(graph, cluster=cluster)
    made = frontends.read(graph, cluster=cluster, nodes={"colour": "op"}, edges={"weight": None})
    assert (made.problem.graph.op[0], made.lost) == ("red", ("attributes of edges: weight",))
    del graph.edges["a", "b"]["weight"]
    graph.nodes["b"]["durations"] = {"z": 1.0}
    with pytest.raises(InvalidProblem, match="durations of node 'b' has the device 'z'; the cluster has x, y"):
        frontends.read(graph, cluster=cluster)
    del graph.nodes["b"]["durations"]
    with pytest.raises(InvalidProblem, match="durations of node 'b' is None; it must be a mapping"):
        frontends.read(graph, cluster=cluster)


# ---------------------------------------------------------------- round trips


COLUMNS = {"weight_bytes": 0.0, "input_bytes": 0.0, "output_bytes": 0.0, "colocation": False, "pins": False}


CARRIED = st.just(True)


@st.composite
def identical(draw, *, tasks="t", costs=None, plain=True):
    """Draw a problem on identical processors p0, p1, ..., of which transfers take the bytes of their edge in seconds, or no time."""
    with_costs = draw(st.booleans() if costs is None else costs)
    graph = draw(task_graphs(**COLUMNS, edge_bytes=AMOUNTS if with_costs else 0.0))
    graph = graph.replace(tasks=[f"{tasks}{i}" for i in range(graph.n_tasks)])
    count = draw(st.integers(1, 3))
    times = np.array(draw(st.lists(AMOUNTS, min_size=graph.n_tasks, max_size=graph.n_tasks)))
    bandwidth = 1.0 if with_costs and (graph.n_edges or not plain) else np.inf
    cluster = hs.Cluster([f"p{k}" for k in range(count)], bandwidth=bandwidth)
    return hs.Problem(graph, cluster, durations=np.repeat(times[:, None], count, axis=1))


@st.composite
def shops(draw):
    """Draw a flexible job shop without numbers of jobs."""
    graph = draw(task_graphs(**COLUMNS, edge_bytes=0.0))
    count = draw(st.integers(1, 3))
    runs = np.array(draw(st.lists(AMOUNTS | st.just(np.nan), min_size=graph.n_tasks * count, max_size=graph.n_tasks * count)))
    runs = runs.reshape(graph.n_tasks, count)
    runs[np.isnan(runs).all(axis=1), 0] = 1.0
    runs[0, -1] = 2.0  # the number of machines is that of the last one with an option
    cluster = hs.Cluster([f"m{k}" for k in range(count)], bandwidth=np.inf)
    return hs.Problem(graph.replace(tasks=[f"o{i}" for i in range(graph.n_tasks)]), cluster, durations=runs)


@st.composite
def related(draw):
    """Draw a problem of devices whose speeds are powers of two, and of symmetric links of which some may be missing."""
    graph = draw(task_graphs(**COLUMNS))
    count = draw(st.integers(1, 3))
    speeds = np.array(draw(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=count, max_size=count)))
    costs = np.array(draw(st.lists(AMOUNTS, min_size=graph.n_tasks, max_size=graph.n_tasks)))
    rates = np.array(draw(st.lists(st.sampled_from([0.0, 1.0, 2.0, 4.0]), min_size=count**2, max_size=count**2))).reshape(count, count)
    rates = np.triu(rates, 1) + np.triu(rates, 1).T + np.diag([np.inf] * count)
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.where(rates > 0, graph.edge_bytes[:, None, None] / rates, np.nan)
    cluster = hs.Cluster([f"d{k}" for k in range(count)], bandwidth=rates)
    durations = costs[:, None] / speeds
    if not costs.any():  # then speeds cannot be told apart, and are not needed
        durations[:] = 0.0
    try:
        return hs.Problem(graph, cluster, durations=durations, transfers=None if rates.all() else times)
    except InvalidProblem:  # no devices for two tasks
        reject()


def again(problem, name, **options):
    with tempfile.TemporaryDirectory() as folder:  # examples of hypothesis share tmp_path
        path = Path(folder) / "x"
        frontends.write(problem, path, name, **options)
        return frontends.read(path, name, **({"processors": problem.n_devices} if name == "stg" else {}))


ROUND = [("stg", identical()), ("fjsp", shops()), ("gxl", identical(tasks="any ", costs=CARRIED, plain=False)), ("dagbench", related())]


@pytest.mark.parametrize(("name", "drawn"), ROUND, ids=[name for name, _ in ROUND])
@examples(60)
@given(data=st.data())
def test_what_a_format_states_is_read_back_to_the_bit(data, name, drawn):
    problem = data.draw(drawn)
    assert again(problem, name).problem == (sorted_edges(problem, "target") if name == "stg" else problem)


@pytest.mark.parametrize("name", names(writes=True))
@examples(60)
@given(problem=problems())
def test_what_a_format_does_not_state_is_refused(problem, name):
    try:
        back = again(problem, name, **({} if name in ("dagbench", "hetsched") else {"rename": True})).problem
    except UnsupportedFeature:
        assert name != "hetsched"
        return
    kept = back.graph.edges, back.inputs, back.communication, back.batching, back.memory, back.cluster.latency
    expected = sorted_edges(problem, "target") if name == "stg" else problem
    given = expected.graph.edges, problem.inputs, problem.communication, problem.batching, problem.memory, problem.cluster.latency
    for one, two in zip(kept, given, strict=True):
        np.testing.assert_array_equal(one, two)
    np.testing.assert_allclose(back.durations, problem.durations, rtol=1e-12)


@examples(60)
@given(problem=problems(inputs=1, batching="once", communication="delay", memory="static", transfers=False))
def test_networkx_states_a_problem_but_for_its_cluster(problem):
    graph = frontends.networkx.to_networkx(problem)
    assert frontends.read(graph, cluster=problem.cluster).problem == sorted_edges(problem, "source")


@examples(30)
@given(problem=problems(inputs=2))
def test_networkx_refuses_several_inputs(problem):
    with pytest.raises(UnsupportedFeature, match="a graph of networkx cannot state this problem: inputs is 2 and would be read back as 1"):
        frontends.networkx.to_networkx(problem)


@examples(40)
@given(problem=identical(costs=CARRIED, plain=False))
def test_a_schedule_is_written_with_its_problem(problem):
    schedule = hs.solve(problem, "heft").schedule
    made = again(problem, "gxl", schedule=schedule)
    assert made.problem == problem
    assert hs.verify(problem, made.schedule) == []
    for task in schedule.tasks:
        assert (made.schedule.device_of(task), made.schedule.start(task)) == (schedule.device_of(task), schedule.start(task))
    assert (made.reference.upper, made.lost) == (schedule.makespan, ())


@installed("pyjobshop")
@examples(40)
@given(problem=shops(), unit=st.sampled_from([1.0, 0.125]))
def test_pyjobshop_states_a_shop_of_whole_numbers(problem, unit):
    try:
        data = frontends.pyjobshop.to_pyjobshop(problem, unit=unit)
    except UnsupportedFeature as error:
        assert "whole numbers only" in str(error)  # noqa: PT017
        assert unit == 1
        return
    assert frontends.read(data, unit=unit).problem == problem


@installed("pyjobshop")
def test_pyjobshop_states_memory_and_colocation_and_lists_all_that_a_problem_does_not():
    graph = hs.TaskGraph(["a", "b", "c"], [("a", "b")], weight_bytes=[1, 2, 3], op=["job 0", "", ""], colocation=[None, "r", "r"])
    cluster = hs.Cluster([hs.Device("x", memory_bytes=6), hs.Device("y")], bandwidth=np.inf)
    problem = hs.Problem(graph, cluster, durations=[[2, 4], [3, 6], [1, np.nan]])
    data = frontends.pyjobshop.to_pyjobshop(problem)
    assert frontends.read(data).problem == problem.replace(graph=graph.replace(colocation=[None, "group 0", "group 0"]))
    data.tasks[0].earliest_start, data.resources[0].no_idle, data.objective.weight_total_tardiness = 3, True, 1
    with pytest.raises(
        InvalidProblem, match="earliest_start of tasks, no_idle of resources, weight_total_tardiness of the objective; remove"
    ):
        frontends.read(data)
    with pytest.raises(UnsupportedFeature, match="PyJobShop cannot state this problem: bandwidth from 'x' to 'y' is 1.0"):
        frontends.pyjobshop.to_pyjobshop(problem.replace(cluster=cluster.replace(bandwidth=1.0)))


@pytest.mark.slow
@installed("pyjobshop")
@examples(200)
@given(problem=shops())
def test_pyjobshop_finds_the_same_optimum(problem):
    pyjobshop = pytest.importorskip("pyjobshop")
    result = pyjobshop.solve(frontends.pyjobshop.to_pyjobshop(problem, unit=0.125), display=False, num_workers=1)
    assert hs.solve(problem, "cpsat", threads=1).makespan == pytest.approx(result.objective * 0.125)


@installed("saga")
def test_objects_of_saga_itself():
    graph = hs.TaskGraph(["a", "b"], [("a", "b", 3)])
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=4.0), durations=[[2, 1], [4, 2]])
    network, tasks = frontends.saga.to_saga(problem)
    assert frontends.saga.read(tasks, network).problem == problem


# ---------------------------------------------------------------- damaged files


@pytest.mark.parametrize("name", EVERY)
@examples(60)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 8))
def test_a_damaged_file_is_a_problem_or_an_error_of_one_line(name, place, bit):
    text, suffix, options = FILES[name]
    data = bytearray(text.encode())
    position = int(place * len(data))
    if bit == 8:
        del data[position:]
    else:
        data[position] ^= 1 << bit
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"x{suffix}"
        path.write_bytes(data)
        try:
            made = frontends.read(path, name.split()[0], **options)
        except InvalidProblem as error:
            assert str(path) in str(error)  # noqa: PT017
        else:
            assert isinstance(made.problem, hs.Problem)


LINES = [
    (STG.replace("3 0 2 1 2", "3 0 2 1 40"), ".stg", "x.stg, line 5: task 3 names predecessor 40, but there are 4 tasks"),
    (STG.replace("1 3 1 0", "1 -3 1 0"), ".stg", "x.stg, line 3: a time is '-3'; it must be a number, at least 0"),
    (STG.replace("1 3 1 0", "7 3 1 0"), ".stg", "x.stg, line 3: task 7 stands where task 1 is due"),
    (STG.replace("1 3 1 0", "1 3 1 0 7"), ".stg", "x.stg: some tasks have costs after their predecessors"),
    (STG.replace("1 3 1 0", "1 3 1 0 7 9"), ".stg", "x.stg, line 3 has 6 words; 1 predecessors need 4, or 5 with costs"),
    (STG.replace("2\n", "9\n", 1), ".stg", "x.stg has 4 tasks, but its first line states 9"),
    (STG.replace("1 3 1 0", "1 3 1 3"), ".stg", "x.stg: the graph has a cycle"),
    (FJSP.replace('"after":1', '"after":9'), ".json", "x.json: precedence 0 -> 9 names operation 9, but there are 2, numbered from 0"),
    (FJSP.replace('"operation":1', '"operation":2'), ".json", "x.json: operation 1 has no option"),
    (FJSP.replace('"duration":3', '"duration":"3"'), ".json", "x.json: Expected `float`, got `str` - at `$.operations[0].duration`"),
    (GXL.replace("<int>3</int>", "<int>x</int>", 1), ".gxl", "x.gxl: node 'b' has the Weight 'x'; it must be a number, at least 0"),
    (GXL.replace('to="b"', 'to="c"'), ".gxl", "x.gxl: "),
    (GXL.replace("Weight", "cost"), ".gxl", "x.gxl: node 'a' has no Weight; give each one, or weight= with the name of the attribute"),
    (GXL.replace('"directed"', '"undirected"'), ".gxl", "x.gxl has edges without a direction; a task graph has directed edges"),
    (GXL.replace("<edge ", '<edge isdirected="false" '), ".gxl", "x.gxl has edges without a direction"),
    (GXL.replace("</graph>", "<rel/></graph>"), ".gxl", "x.gxl has hyperedges (rel); a task graph has directed edges"),
    (GXL.replace("</node>", "<graph/></node>", 1), ".gxl", "x.gxl has graphs within nodes or edges; a task graph"),
    (GXL.replace("</graph>", "</graph><graph/>"), ".gxl", "x.gxl has 2 elements 'graph'; give a GXL file of one graph"),
    (
        GXL.replace("<int>3</int>", "<seq><int>1</int><int>3</int></seq>", 1),
        ".gxl",
        "x.gxl: node 'b' has the Weight '<seq>'; it must be a number",
    ),
    (STG.replace("2\n", "2 8\n", 1), ".stg", "x.stg, line 1 has 2 words; the first line is the number of tasks alone"),
    (
        DAGBENCH.replace('"speed": 4', '"speed": null'),
        ".json",
        "x.json: link 'x' - 'y' has no speed; give a number, 0 if nothing can be sent",
    ),
    (DAGBENCH.replace('"cost": 2', '"cost": {"mean": 2}'), ".json", "x.json: Expected `float`, got `object`"),
    (WFFORMAT.replace('"1.5"', '"1.4"'), ".json", "x.json has version 1.4 of WfFormat; versions 1.5 and 1.6 are read"),
    (WFFORMAT.replace('"id": "b_2", "run', '"id": "a_1", "run'), ".json", "x.json: a task has two runtimes in execution.tasks; give one"),
    (WFFORMAT.replace('"execution"', '"planned"'), ".json", "x.json has no execution, so no runtimes"),
    (WFFORMAT.replace('"parents": ["a_1"]', '"parents": ["q"]'), ".json", "x.json: task 'b_2' names the task 'q', which is not there"),
    (DNN.replace('"maxFPGAs": 2', '"maxFPGAs": 9999'), ".json", "x.json: Expected `int` <= 4096 - at `$.maxFPGAs`"),
    (MOIRAI.replace("[0, 6]", "[0]"), ".json", "x.json: comm_time of edge 3 -> 4 is no 2 x 2 matrix"),
    ("{}", ".json", "x.json has no fields of a known format; choose a format: stg, fjsp"),
    ("digraph {}", ".txt", "x.txt is no JSON"),
]


@pytest.mark.parametrize(("text", "suffix", "message"), LINES)
def test_a_wrong_file_is_named_with_the_place(file, text, suffix, message):
    options = {"processors": 2} if suffix in (".stg", ".gxl") else {"bandwidth": 1.0} if "schemaVersion" in text else {}
    with pytest.raises(InvalidProblem) as error:
        frontends.read(file(text, suffix), **options)
    assert str(error.value).startswith(message)


def test_options_are_those_of_the_format(file):
    path = file(STG, ".stg")
    for options, message in (
        ({}, "x.stg does not state how many processors there are; give processors=8"),
        ({"bandwidth": 1.0}, "format 'stg' has no option 'bandwidth'; it has processors"),
        ({"processors": 0}, "processors is 0; it must be a whole number from 1 to 4096"),
        ({"format": "gml"}, "format is 'gml'; choose one of stg, fjsp"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            frontends.read(path, **options)
    with pytest.raises(InvalidArgument, match="states no bandwidth; give bandwidth="):
        frontends.read(file(WFFORMAT))
    with pytest.raises(InvalidArgument, match="source is 3; it must be a path, a networkx.DiGraph"):
        frontends.read(3)
    with pytest.raises(InvalidArgument, match="format 'networkx' needs the option 'cluster'"):
        frontends.read(hs.TaskGraph(["a"]).to_networkx())


def test_a_writer_says_what_its_format_cannot(file):
    graph = hs.TaskGraph(["a", "b"], [("a", "b", 1)], weight_bytes=[3, 0])
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=2.0), durations=[[1, 2], [2, 1]])
    for changed, name, options, message in (
        (
            problem,
            "stg",
            {},
            "an STG file cannot state this problem: the name of a task is 'a' and would be read back as 't0'; rename=True",
        ),
        (problem, "stg", {"rename": True}, "weight_bytes of task 't0' is 3.0 and would be read back as 0.0; change that"),
        (problem.replace(inputs=2, durations=[[[1], [2]], [[2], [1]]]), "fjsp", {"rename": True}, "inputs is 2 and would be"),
        (
            problem,
            "dagbench",
            {},
            "a file of DAGBench has related devices only: 'y' has another speed relative to 'x' for 'a' than for 'b'",
        ),
        (problem.replace(graph=graph.replace(weight_bytes=0.0)), "gxl", {"rename": True}, "bandwidth from 'p0' to 'p1' is 2.0 and would"),
        (problem, "wfformat", {}, "format is 'wfformat'; choose one of stg, fjsp, gxl, dagbench, hetsched"),
    ):
        with pytest.raises((UnsupportedFeature, InvalidArgument)) as error:
            frontends.write(changed, "out", name, **options)
        assert message in str(error.value)
    assert not Path("out").exists()
    with pytest.raises(UnsupportedFeature, match="no format is written to a name that ends in '.dot'; choose a format: stg"):
        frontends.write(problem, "x.dot")
    with pytest.raises(InvalidSchedule, match="the schedule has other tasks, devices or inputs than the problem"):
        frontends.auckland.write(
            problem, "x.gxl", schedule=hs.solve(problem.replace(cluster=problem.cluster.replace(devices=["z", "y"])), "heft").schedule
        )


@pytest.mark.parametrize("name", NEEDS)
def test_a_missing_library_is_named_with_its_extra(file, name, monkeypatch):
    text, suffix, options = FILES[name]
    monkeypatch.setitem(__import__("sys").modules, NEEDS[name], None)
    with pytest.raises(MissingDependency, match=rf"{NEEDS[name]}.*hetsched\[formats\]"):
        frontends.read(file(text, suffix), **options)


def test_formats_are_told_apart():
    for one in FORMATS.values():
        assert not (one.suffixes and one.fields)
        assert sum(one.fields <= other.fields for other in FORMATS.values()) == 1 or not one.fields
    suffixes = [suffix for one in FORMATS.values() for suffix in one.suffixes]
    assert len(suffixes) == len(set(suffixes))


@pytest.mark.parametrize(
    ("path", "options", "optimum"), [("fjsp/fattahi1.json", {}, 66), ("stg/100-rand0014.stg", {"processors": 16}, 107)]
)
def test_proven_optima_are_found(shared_data, path, options, optimum):
    problem = instances.read(shared_data / path, **options)
    solution = hs.solve(problem, "cpsat", time_limit=20)
    assert hs.verify(problem, solution.schedule) == []
    assert (solution.makespan, solution.status) == (optimum, hs.Status.OPTIMAL)


@installed("fjsplib")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("3 2\n1 1 1 5\n", "says that it has 3 jobs, but there are 1 lines of jobs; it may be cut off"),
        ("2 3\n", "says that it has 2 jobs, but there are 0 lines of jobs"),
        ("1 2\n1 1 1 5 1 2 7 9\n", "line 2: its 1 operations do not end with the line"),
        ("1 2\n2 1 1 5 0\n", "operation 1 has no machine; give each one at least"),
    ],
)
def test_a_damaged_job_shop_as_text_is_refused(tmp_path: Path, text: str, said: str):
    (tmp_path / "shop.fjs").write_text(text)
    with pytest.raises(hs.InvalidProblem, match=said):
        hs.frontends.read(tmp_path / "shop.fjs")
