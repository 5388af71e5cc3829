"""Tools that run a model on several devices: placements as text for each, texts as placements, refusals and defaults."""

from __future__ import annotations

from collections.abc import Mapping

from hetsched.arguments import checked, shown
from hetsched.errors import InvalidArgument
from hetsched.planning.tools.accelerate import ACCELERATE, TRANSFORMERS
from hetsched.planning.tools.llama_cpp import LLAMA_CPP
from hetsched.planning.tools.megatron import MEGATRON
from hetsched.planning.tools.ollama import OLLAMA
from hetsched.planning.tools.protocol import Command, Devices, Tool
from hetsched.planning.tools.torch_pipelining import TORCH, TORCH_PIPELINE
from hetsched.planning.tools.vllm import SGLANG, VLLM

__all__ = ["TOOLS", "Command", "Devices", "Tool", "tool"]

TOOLS: Mapping[str, Tool] = {
    tool.name: tool for tool in (ACCELERATE, LLAMA_CPP, MEGATRON, OLLAMA, SGLANG, TORCH, TORCH_PIPELINE, TRANSFORMERS, VLLM)
}
"""The tools by name."""


@checked
def tool(name: str) -> Tool:
    """Return the tool of a name.

    Raises
    ------
    InvalidArgument
        There is no tool of this name.
    """
    if name not in TOOLS:
        raise InvalidArgument(f"tool is {shown(name)}; choose from {', '.join(TOOLS)}")
    return TOOLS[name]
