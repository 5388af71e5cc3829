"""What the two processes of a pipeline run, for the tests of torch's stages."""

from __future__ import annotations

import ast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe, SplitPoint, pipeline

BATCH, MICRO_BATCHES = 8, 4


class Plain(nn.Module):
    """A chain with the names of modules of a card."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Linear(6, 16)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(4))
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class LlamaStage(nn.Module):
    """Blocks of a Llama of Transformers, with the embedding if they are the first, with norm and head if they are the last."""

    def __init__(self, model: nn.Module, first: int, end: int, *, is_first: bool, is_last: bool) -> None:
        super().__init__()
        self.embed = model.model.embed_tokens if is_first else nn.Identity()
        self.blocks = model.model.layers[first:end]
        self.rotary = model.model.rotary_emb
        self.head = nn.Sequential(model.model.norm, model.lm_head) if is_last else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        positions = torch.arange(x.shape[1])[None]
        mask = torch.full((x.shape[1], x.shape[1]), float("-inf")).triu(1)[None, None]
        for block in self.blocks:
            x = block(x, attention_mask=mask, position_ids=positions, position_embeddings=self.rotary(x, positions))
        return self.head(x)


def plain_input() -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(BATCH, 6)


def llama() -> nn.Module:
    from transformers import AutoModelForCausalLM, LlamaConfig

    torch.manual_seed(0)
    config = LlamaConfig(
        num_hidden_layers=4, hidden_size=16, intermediate_size=24, num_attention_heads=2, vocab_size=50, attn_implementation="eager"
    )
    return AutoModelForCausalLM.from_config(config).eval()


def llama_input() -> torch.Tensor:
    return torch.arange(BATCH * 5).reshape(BATCH, 5) % 50


def run(rank: int, cases: list[tuple[str, str]], store: str, output: str) -> None:
    """Run one stage of each pipeline, a kind and the keyword arguments of its text; the last stage writes the outputs."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    with torch.no_grad():
        made = [_step(rank, kind, text) for kind, text in cases]
    if rank == 1:
        torch.save(made, output)
    dist.destroy_process_group()


def _step(rank: int, kind: str, text: str) -> torch.Tensor | None:
    stated = {word.arg: word.value for word in ast.parse(f"f({text})", mode="eval").body.keywords}
    device = torch.device(ast.literal_eval(stated["devices"])[rank])
    if kind == "plain":
        module, x = Plain(), plain_input()
        spec = eval(ast.unparse(stated["split_spec"]), {"SplitPoint": SplitPoint})
        pipe = pipeline(module, mb_args=(x[: BATCH // MICRO_BATCHES],), split_spec=spec)
        assert pipe.num_stages == 2
        stage = pipe.build_stage(rank, device)
    else:
        cuts, x = ast.literal_eval(stated["cuts"]), llama_input()
        part = LlamaStage(llama(), *cuts[rank], is_first=rank == 0, is_last=rank == len(cuts) - 1)
        stage = PipelineStage(part, rank, len(cuts), device)
    schedule = ScheduleGPipe(stage, MICRO_BATCHES)
    return schedule.step(x) if rank == 0 else schedule.step()
