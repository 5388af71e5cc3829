"""Machines: names of devices in tools, and which times are measured."""

from __future__ import annotations

import pytest

import hetsched as hs
from hetsched.errors import InvalidArgument
from hetsched.planning.tools import TOOLS

TORCH = sorted(set(TOOLS) - {"llama.cpp"})


def machine(*kinds, **settings):
    return hs.costs.devices.machine(kinds, **settings)


@pytest.mark.parametrize("tool", TORCH)
def test_tools_of_torch_number_the_gpus(tool):
    assert machine("rtx4090", "ryzen9950x", "rtx3060").names_in(tool) == (0, "cpu", 1)
    assert machine("apple-m2-ultra").names_in(tool) == ("mps",)


def test_llama_cpp_numbers_the_devices_of_each_backend():
    assert machine("rtx4090", "mi300x", "ryzen9950x", "rtx3060").names_in("llama.cpp") == ("CUDA0", "ROCm0", "CPU", "CUDA1")
    assert machine("apple-m2-ultra").names_in("llama.cpp") == ("MTL0",)


def test_numbers_begin_anew_on_each_node_and_stated_names_go_first():
    devices = [hs.costs.device("t4", f"t{k}", node) for k, node in enumerate("aab")]
    spread = hs.costs.devices.machine([*devices, hs.Device("cpu7", node="b")], network="10gbe", tool_names={"t0": {"llama.cpp": "RPC0"}})
    assert spread.names_in("llama.cpp") == ("RPC0", "a:CUDA1", "b:CUDA0", "b:CPU")
    assert spread.names_in("vllm") == ("a:0", "a:1", "b:0", "b:cpu")


def test_a_family_without_a_default_name_needs_one():
    made = machine(hs.Device("npu0", family="npu"), tool_names={"npu0": {"vllm": 3}})
    assert made.names_in("vllm") == (3,)
    with pytest.raises(
        InvalidArgument, match=r"'npu0' is of family 'npu', which has no default name in torch; make the machine with tool_n"
    ):
        made.names_in("torch")


def test_costs_are_measured_where_an_efficiency_is_stated():
    made = machine("rtx4090", "rtx3060", reserved_bytes={"gpu0": 1e9}, tool_names={"gpu0": {"vllm": 5}})
    one = made.with_efficiency({"gpu1": (0.4, 0.7)})
    both = one.with_efficiency({"gpu0": (0.5, 0.8)})
    assert [m.cost_basis for m in (made, one, both)] == ["modelled", "mixed", "measured"]
    assert (both.efficiency["gpu1"], both.reserved_bytes, both.tool_names) == ((0.4, 0.7), made.reserved_bytes, made.tool_names)
    with pytest.raises(hs.InvalidProblem, match="efficiency names 'gpu9', which is not in the cluster"):
        made.with_efficiency({"gpu9": (0.5, 0.5)})
