"""`hetsched convert`: what it prints, what it writes, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hetsched as hs
from tests.frontends.format_files import FJSP, GXL, STG, WFFORMAT


def test_a_file_becomes_a_problem_and_what_is_lost_is_printed(run, folder):
    Path("x.stg").write_text(STG)
    done = run("convert", "x.stg", "--processors", 2, "-o", "problem.json")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "problem   4 tasks, 4 edges on p0, p1",
        "second    the file's unit of time, read as one second",
        "lost      comments: A comment; and more",
        "wrote     problem.json",
    ]
    assert hs.read("problem.json") == hs.frontends.read("x.stg", processors=2).problem


def test_strict_writes_nothing_where_something_is_lost(run, folder):
    Path("x.json").write_text(FJSP)
    done = run("convert", "x.json", "-o", "problem.json", "--strict", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["written"] == []
    assert not Path("problem.json").exists()
    Path("y.stg").write_text("1\n0 3 0\n")
    assert run("convert", "y.stg", "--processors", 2, "-o", "problem.json", "--strict").exit_code == 0


def test_the_schedule_and_the_reference_of_a_file(run, folder):
    Path("x.gxl").write_text(GXL)
    done = run("convert", "x.gxl", "-o", "problem.json", "--schedule", "schedule.json")
    assert done.exit_code == 0
    assert "makespan  at most 6 (x.gxl)" in done.stdout
    assert run("verify", "problem.json", "schedule.json").exit_code == 0
    assert "which --schedule writes" not in done.stdout
    without = run("convert", "x.gxl", "-o", "other.json", "--strict")
    assert (without.exit_code, Path("other.json").exists()) == (1, False)
    assert "lost      the schedule of the file, which --schedule writes" in without.stdout


def test_the_attribute_with_the_times_is_an_option(run, folder):
    Path("x.gxl").write_text(GXL.replace("Weight", "cost"))
    done = run("convert", "x.gxl", "-o", "problem.json")
    assert (done.exit_code, done.stderr) == (
        2,
        "error: x.gxl: node 'a' has no Weight; give each one, or --weight with the name of the attribute that has its time\n",
    )
    assert run("convert", "x.gxl", "--weight", "cost", "-o", "problem.json").exit_code == 0


def test_a_document_is_written_in_another_format(run, problem):
    done = run("convert", "problem.json", "--to", "stg", "-o", "x.stg")
    assert done.exit_code == 2
    assert done.stderr.startswith(
        "error: an STG file cannot state this problem: the name of a task is 'load' and would be read back as 't0'"
    )
    assert not Path("x.stg").exists()
    one = hs.Problem(hs.TaskGraph(["a"]), hs.Cluster(["x"]), durations=[[2.0]])
    one.write("one.json")
    assert run("convert", "one.json", "--rename", "-o", "one.stg").exit_code == 0
    assert Path("one.stg").read_text() == "1\n0 2 0\n"


def test_a_missing_option_is_named(run, folder):
    Path("x.json").write_text(WFFORMAT)
    done = run("convert", "x.json", "-o", "problem.json")
    assert (done.exit_code, done.stderr.split(";")[0]) == (2, "error: x.json states no bandwidth")
    assert run("convert", "x.json", "--bandwidth", "inf", "-o", "problem.json").exit_code == 0
    assert run("convert", "x.json", "--cluster", "diviml", "-o", "problem.json").exit_code == 0


def test_a_model_in_onnx_becomes_a_problem(run, folder):
    onnx = pytest.importorskip("onnx")
    kinds = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", "width"]) for name in ("x", "y")]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"], name="act")], "net", kinds[:1], kinds[1:])
    onnx.save(onnx.helper.make_model(graph), "net.onnx")
    done = run(
        "convert", "net.onnx", "--cluster", "diviml", "--dim", "batch=4", "--dim", "width=8", "--costs", "roofline", "-o", "problem.json"
    )
    assert done.exit_code == 0, done.stderr
    cluster, costs = hs.workloads.clusters.load("diviml"), hs.costs.Roofline()
    assert hs.read("problem.json") == hs.frontends.read("net.onnx", cluster=cluster, dims={"batch": 4, "width": 8}, costs=costs).problem
    done = run("convert", "net.onnx", "--cluster", "diviml", "-o", "problem.json")
    assert done.stderr.startswith("error: the input 'x' has dimensions without a length; give one for each: --dim batch=1, --dim width=1")
    done = run("convert", "net.onnx", "--cluster", "diviml", "--dim", "batch", "-o", "problem.json")
    assert done.stderr.startswith("error: --dim 'batch' is not of the form NAME=LENGTH, for instance batch=1")


def test_shapes_and_values_that_a_model_in_onnx_depends_on_are_given(run, folder):
    onnx = pytest.importorskip("onnx")
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    x, y = (helper.make_tensor_value_info(name, floats, None) for name in "xy")
    c = helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, [])
    bodies = [helper.make_graph([helper.make_node(op, ["x"], ["z"])], op, [], [y]) for op in ("Relu", "Sigmoid")]
    for body in bodies:
        body.output[0].name = "z"
    node = helper.make_node("If", ["c"], ["y"], name="early", then_branch=bodies[0], else_branch=bodies[1])
    onnx.save(helper.make_model(helper.make_graph([node], "net", [c, x], [y])), "net.onnx")
    words = ("convert", "net.onnx", "--cluster", "diviml", "-o", "problem.json")
    assert "give it: --shape x=1,..." in run(*words, "--value", "c=true").stderr
    assert "give the values that it depends on, --value c=..., or" in run(*words, "--shape", "x=2,3").stderr
    assert run(*words, "--shape", "x=2,3", "--value", "c=false").exit_code == 0
    assert hs.read("problem.json").graph.op == ("input", "sigmoid")
    for text in ("c=maybe", "=1", "c"):
        assert f"--value {text!r} is not of the form NAME=VALUE, for instance rate=16000" in run(*words, "--value", text).stderr
    assert "--shape 'x=2,b' is not of the form NAME=SHAPE" in run(*words, "--shape", "x=2,b").stderr
    assert "--value has 'd', which is no input of the model" in run(*words, "--shape", "x=2,3", "--value", "d=1").stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("x.stg -o p.json", "x.stg does not state how many processors there are; give --processors 8, for instance"),
        ("x.stg --processors 0 -o p.json", "--processors is 0; it must be a whole number from 1 to 4096, or None"),
        ("x.stg --processors 2 --bandwidth 3 -o p.json", "format 'stg' has no --bandwidth; it has processors"),
        ("x.stg --format none -o p.json", "--format is 'none'; choose one of stg, "),
        ("x.stg --processors 2 --to none -o p.json", "--to is 'none'; choose one of stg, "),
        ("x.stg --processors 2 -o p.none", "no format is written to a name that ends in '.none'; choose one by --to: stg, "),
        ("x.stg --processors 2 --rename -o p.json", "format 'hetsched' has no --rename; it has none"),
        ("x.stg --processors 2 --to fjsp -o p.json", "would be read back as 'o0'; --rename names them so"),
        ("w.json -o p.json", "w.json states no bandwidth; give --bandwidth of its machines (inf if sending takes no time), or --cluster"),
        ("empty.json -o p.json", "its name tells no format; choose one by --format: stg, "),
        ("empty.json --format gxl -o p.json", "empty.json is no GXL: no element found"),
    ],
)
def test_errors_name_the_options_of_the_command(run, folder, words, message):
    Path("x.stg").write_text("1\n0 3 0\n")
    Path("w.json").write_text(WFFORMAT)
    Path("empty.json").write_text("")
    done = run("convert", *words.split())
    assert done.exit_code == 2
    assert message in done.stderr
