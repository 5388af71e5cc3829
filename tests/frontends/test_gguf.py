"""Cards of GGUF files that the tests write, without contents: bytes by tensor, items, attention, and what is refused."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.chain import PARTS
from hetsched.errors import InvalidProblem, MissingDependency
from hetsched.frontends import gguf as reader

gguf = pytest.importorskip("gguf", reason="gguf is not installed: pip install 'hetsched[gguf]'")
Kind = gguf.GGMLQuantizationType

D, FFN, VOCABULARY = 256, 512, 1000
FIELDS = {
    "embedding_length": D,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "feed_forward_length": FFN,
    "context_length": 2048,
}
KINDS = st.sampled_from([Kind.F32, Kind.F16, Kind.Q8_0, Kind.Q4_K, Kind.Q6_K, Kind.Q2_K, Kind.MXFP4])


def write(path, family, tensors, fields, *, numbers=None):
    """Write a sparse GGUF file with tensors {name: (shape, kind)}, the fields of a family and those of any; return its tensors' bytes."""
    writer = gguf.GGUFWriter(path, family)
    for key, value in {**{f"{family}.{key}": value for key, value in fields.items()}, **(numbers or {})}.items():
        if value is None:
            continue
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, list):
            writer.add_array(key, value)
        else:
            writer.add_uint32(key, value)
    end = 0
    for name, (shape, kind) in tensors.items():
        block, size = gguf.GGML_QUANT_SIZES[kind]
        count = int(np.prod(shape)) // block * size
        writer.add_tensor_info(name, shape, np.dtype(np.float16), count, raw_dtype=kind)
        end += -(-count // 32) * 32
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    start = writer.fout[0].tell()
    writer.close()
    os.truncate(path, -(-start // 32) * 32 + end)
    return {tensor.name: int(tensor.n_bytes) for tensor in gguf.GGUFReader(str(path)).tensors}


def dense(blocks, *, tied=False, kind=Kind.Q4_K):
    """Return the tensors of a dense model."""
    tensors = {
        "token_embd.weight": ((VOCABULARY, D), Kind.Q6_K),
        "output_norm.weight": ((D,), Kind.F32),
        "rope_freqs.weight": ((32,), Kind.F32),
    }
    for i in range(blocks):
        for name, shape in (("attn_q", (D, D)), ("attn_k", (D // 2, D)), ("attn_v", (D // 2, D)), ("attn_output", (D, D))):
            tensors[f"blk.{i}.{name}.weight"] = (shape, kind)
        for name, shape in (("ffn_gate", (FFN, D)), ("ffn_up", (FFN, D)), ("ffn_down", (D, FFN))):
            tensors[f"blk.{i}.{name}.weight"] = (shape, Kind.Q6_K if i % 2 else kind)
        tensors[f"blk.{i}.attn_norm.weight"] = ((D,), Kind.F32)
        tensors[f"blk.{i}.ffn_norm.weight"] = ((D,), Kind.F32)
    return tensors if tied else {**tensors, "output.weight": ((VOCABULARY, D), kind)}


def sparse(blocks, *, shared=True):
    """Return the tensors of a model with experts, and a dense block first."""
    tensors = dense(blocks)
    for i in range(1, blocks):
        for name in ("gate", "up", "down"):
            del tensors[f"blk.{i}.ffn_{name}.weight"]
            shape = (8, D, 256) if name == "down" else (8, 256, D)
            tensors[f"blk.{i}.ffn_{name}_exps.weight"] = (shape, Kind.Q4_K)
            if shared:
                tensors[f"blk.{i}.ffn_{name}_shexp.weight"] = (shape[1:], Kind.Q8_0)
        tensors[f"blk.{i}.ffn_gate_inp.weight"] = ((8, D), Kind.F32)
        tensors[f"blk.{i}.exp_probs_b.bias"] = ((8,), Kind.F32)
    return tensors


def part(card, item, name):
    """Return the bytes of a part of an item."""
    return card.weight_bytes[card.items.name.tolist().index(item), PARTS.index(name)]


@given(st.integers(1, 3), st.booleans(), KINDS)
def test_bytes_are_those_of_the_tensors(tmp_path_factory, blocks, tied, kind):
    path = tmp_path_factory.mktemp("model") / "dense.gguf"
    sizes = write(path, "llama", dense(blocks, tied=tied, kind=kind), {**FIELDS, "block_count": blocks})
    card = reader.read(path)
    assert card.exact
    assert card.total_bytes == card.tensors.bytes.sum() == sum(sizes.values())
    assert card.tied == tied
    assert part(card, "head", "table") == sizes["token_embd.weight" if tied else "output.weight"]
    assert part(card, "embed", "table") == sizes["token_embd.weight"] + sizes["rope_freqs.weight"]
    for i in range(blocks):
        own = {name.split(".")[2]: size for name, size in sizes.items() if name.startswith(f"blk.{i}.")}
        assert part(card, f"block {i}", "attention") == own["attn_q"] + own["attn_k"] + own["attn_v"] + own["attn_output"]
        assert part(card, f"block {i}", "dense_ffn") == own["ffn_gate"] + own["ffn_up"] + own["ffn_down"]
        assert part(card, f"block {i}", "norm") == 2 * 4 * D
    block = D * D * 3 + 3 * D * FFN + 2 * D
    assert card.n_parameters == blocks * block + VOCABULARY * D * (1 if tied else 2) + D + 32


def test_sizes_are_those_of_the_metadata(tmp_path):
    path = tmp_path / "small.gguf"
    write(path, "llama", dense(2), {**FIELDS, "block_count": 2}, numbers={"general.name": "Small"})
    card = reader.read(path)
    assert (card.name, card.family, card.width, card.vocabulary, card.context_length) == ("Small", "llama", D, VOCABULARY, 2048)
    assert reader.read(path, name="mine").name == "mine"
    assert card.modules == ((),) * 4
    block = next(row for row in card.items if row["name"] == "block 1")
    assert block == {
        "name": "block 1", "kind": "block", "heads": 4, "key_size": 64, "value_size": 64, "decode_key_size": 64, "decode_value_size": 64,
        "cache_numbers": 256, "experts": 0, "experts_used": 0, "workspace_numbers": 2 * D + 2 * FFN, "window": np.inf,
    }  # fmt: skip


def test_experts_are_a_part_of_their_blocks(tmp_path):
    fields = {**FIELDS, "block_count": 3, "expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 256}
    sizes = write(tmp_path / "moe.gguf", "qwen2moe", sparse(3), fields)
    card = reader.read(tmp_path / "moe.gguf")
    assert card.total_bytes == sum(sizes.values())
    assert card.items.experts.tolist() == [0, 0, 8, 8, 0]
    assert card.items.experts_used.tolist() == [0, 0, 2, 2, 0]
    assert part(card, "block 1", "experts") == sum(size for name, size in sizes.items() if name.startswith("blk.1.") and "_exps" in name)
    assert part(card, "block 1", "shared") == sum(size for name, size in sizes.items() if name.startswith("blk.1.") and "_shexp" in name)
    assert part(card, "block 1", "router") == 4 * (8 * D + 8)
    assert part(card, "block 0", "experts") == part(card, "block 1", "dense_ffn") == 0
    assert card.items.workspace_numbers.tolist() == [D, 2 * D + 2 * FFN, *[2 * D + 2 * (2 * 256 + 256)] * 2, D]


@pytest.mark.parametrize("asked", [1, 3])
def test_a_split_model_is_read_from_any_of_its_files(tmp_path, asked):
    tensors = list(dense(3).items())
    sizes = {}
    for number in range(3):
        path = tmp_path / f"big-{number + 1:05d}-of-00003.gguf"
        fields = {**FIELDS, "block_count": 3} if number == 0 else {}
        sizes |= write(path, "llama", dict(tensors[number::3]), fields, numbers={"split.count": 3, "split.no": number})
    card = reader.read(tmp_path / f"big-{asked:05d}-of-00003.gguf")
    assert card.total_bytes == card.tensors.bytes.sum() == sum(sizes.values())
    assert card.source.endswith("and 2 more")
    (tmp_path / "big-00002-of-00003.gguf").rename(tmp_path / "away.gguf")
    with pytest.raises(
        InvalidProblem, match="big-00002-of-00003.gguf, a file of the split model .* is not beside it; complete the download"
    ):
        reader.read(tmp_path / "big-00001-of-00003.gguf")
    with pytest.raises(InvalidProblem, match="is one of 3 files, whose names must end as -00001-of-00003.gguf"):
        reader.read(tmp_path / "away.gguf")


def test_a_model_of_seventy_billion_takes_no_disk(tmp_path):
    path = tmp_path / "large.gguf"
    d, ffn, heads = 8192, 28672, 8 * 128
    tensors = {
        "token_embd.weight": ((128256, d), Kind.Q4_K),
        "output.weight": ((128256, d), Kind.Q6_K),
        "output_norm.weight": ((d,), Kind.F32),
    }
    for i in range(80):
        shapes = {
            "attn_q": (d, d),
            "attn_k": (heads, d),
            "attn_v": (heads, d),
            "attn_output": (d, d),
            "ffn_gate": (ffn, d),
            "ffn_up": (ffn, d),
        }
        tensors |= {f"blk.{i}.{name}.weight": (shape, Kind.Q4_K) for name, shape in (shapes | {"ffn_down": (d, ffn)}).items()}
        tensors |= {f"blk.{i}.{name}.weight": ((d,), Kind.F32) for name in ("attn_norm", "ffn_norm")}
    fields = {
        "block_count": 80,
        "embedding_length": d,
        "attention.head_count": 64,
        "attention.head_count_kv": 8,
        "feed_forward_length": ffn,
    }
    sizes = write(path, "llama", tensors, fields)
    card = reader.read(path)
    assert card.n_parameters == 70_553_706_496
    assert card.total_bytes == sum(sizes.values()) > 39e9
    assert 2 * card.items.cache_numbers.sum() == 327_680
    assert path.stat().st_blocks * 512 < 1e6


@pytest.mark.parametrize(
    ("family", "more", "windows"),
    [
        ("gemma2", {}, [9.0, np.inf, 9.0, np.inf, 9.0, np.inf]),
        ("gemma3", {}, [9.0] * 5 + [np.inf]),
        ("other", {}, [np.inf] * 6),
        ("other", {"attention.sliding_window_pattern": 3}, [9.0, 9.0, np.inf] * 2),
        ("other", {"attention.sliding_window_pattern": [True, False] * 3}, [9.0, np.inf] * 3),
    ],
)
def test_windows_follow_the_pattern(tmp_path, family, more, windows):
    write(tmp_path / "m.gguf", family, dense(6), {**FIELDS, "block_count": 6, "attention.sliding_window": 9, **more})
    assert reader.read(tmp_path / "m.gguf").items.window.tolist()[1:-1] == windows


def test_latent_attention_keeps_one_vector(tmp_path):
    latent = {"attention.kv_lora_rank": 512, "attention.key_length": 576, "attention.value_length": 512, "attention.head_count_kv": 1}
    short = {"attention.key_length_mla": 192, "attention.value_length_mla": 128, "rope.dimension_count": 64}
    write(tmp_path / "m.gguf", "deepseek2", dense(1), {**FIELDS, "block_count": 1, **latent, **short})
    items = reader.read(tmp_path / "m.gguf").items
    assert [items[column][1] for column in ("key_size", "value_size", "decode_key_size", "decode_value_size")] == [192, 128, 576, 512]
    assert items.cache_numbers[1] == 576


def test_heads_may_differ_by_block(tmp_path):
    fields = {"attention.head_count": [4, 2, 4], "attention.head_count_kv": [2, 2, 0], "feed_forward_length": [FFN, 128, FFN]}
    write(tmp_path / "m.gguf", "llama", dense(3), {**FIELDS, "block_count": 3, **fields})
    items = reader.read(tmp_path / "m.gguf").items
    assert items.heads.tolist() == [0, 4, 2, 0, 0]
    assert items.cache_numbers.tolist() == [0, 256, 256, 0, 0]
    assert items.workspace_numbers.tolist() == [D, 2 * D + 2 * FFN, 2 * D + 2 * 128, 2 * D + 2 * FFN, D]


def test_encoders_do_not_decode(tmp_path):
    tensors = {name: value for name, value in dense(1, tied=True).items() if name != "output_norm.weight"}
    tensors |= {"token_embd_norm.weight": ((D,), Kind.F32), "cls.weight": ((D, D), Kind.F16)}
    write(tmp_path / "bert.gguf", "bert", tensors, {**FIELDS, "block_count": 1, "attention.causal": False})
    card = reader.read(tmp_path / "bert.gguf")
    assert (card.decodes, card.tied, card.items.cache_numbers.sum(), card.n_logits) == (False, False, 0, 0)
    assert part(card, "embed", "norm") == 4 * D
    both = {"token_embd.weight": ((VOCABULARY, D), Kind.F16)}
    for stack in ("enc", "dec"):
        both |= {f"{stack}.blk.{i}.attn_q.weight": ((D, D), Kind.F16) for i in range(2)}
        both[f"{stack}.output_norm.weight"] = ((D,), Kind.F32)
    write(tmp_path / "t5.gguf", "t5", both, {**FIELDS, "block_count": 2, "attention.head_count_kv": None})
    card = reader.read(tmp_path / "t5.gguf")
    assert (card.decodes, card.tied, card.n_blocks) == (False, True, 4)
    assert card.items.heads.tolist() == [0, 4, 4, 8, 8, 0]
    assert part(card, "block 1", "norm") == part(card, "head", "norm") == 4 * D


@pytest.mark.parametrize(
    ("tensors", "fields", "message"),
    [
        (dense(1), {"block_count": None}, "has no field 'llama.block_count', which a card needs; convert the model again"),
        (dense(1), {"attention.head_count": None}, "has no field 'llama.attention.head_count'"),
        (
            dense(2),
            {"attention.head_count": [4]},
            r"'llama.attention.head_count' of .* is \[4\]; it must be a whole number, or one for each block",
        ),
        (dense(1), {"embedding_length": 7}, "token_embd.weight of .* has 256000 numbers, no multiple of embedding_length 7"),
        (dense(2), {"block_count": 3}, "block 2 of .* has no tensor; it must hold a whole model"),
        (dense(3), {"block_count": 2}, "tensor 'blk.2.attn_q.weight' of .* belongs to no item of a model with 2 blocks"),
        (
            {**dense(1), "v.patch.weight": ((8, D), Kind.F16)},
            {},
            "tensor 'v.patch.weight' of .* belongs to no item of a model with 1 blocks",
        ),
        ({"blk.0.attn_q.weight": ((D, D), Kind.F16)}, {}, "has no tensor 'token_embd.weight'; it must hold a whole model"),
        (sparse(2), {}, "has no field 'llama.expert_used_count'"),
        (
            dense(2),
            {"attention.sliding_window": 5, "attention.sliding_window_pattern": [True]},
            "sliding_window_pattern of .* has 1 entries",
        ),
    ],
)
def test_a_bad_file_is_named(tmp_path, tensors, fields, message):
    blocks = len({name.split(".")[1] for name in tensors if name.startswith("blk.")})
    write(tmp_path / "m.gguf", "llama", tensors, {**FIELDS, "block_count": blocks, **fields})
    with pytest.raises(InvalidProblem, match=message):
        reader.read(tmp_path / "m.gguf")


def test_a_file_that_is_cut_off_is_refused(tmp_path):
    path = tmp_path / "m.gguf"
    write(path, "llama", dense(1), {**FIELDS, "block_count": 1})
    for size in (path.stat().st_size - 4000, 200, 6, 0):
        os.truncate(path, size)
        with pytest.raises(InvalidProblem, match="m.gguf is no GGUF file, or cut off: .*; complete the download"):
            reader.read(path)
    path.write_text("no GGUF file at all")
    with pytest.raises(InvalidProblem, match="is no GGUF file, or cut off"):
        reader.read(path)
    with pytest.raises(FileNotFoundError, match="is no file; give a GGUF file"):
        reader.read(tmp_path / "none.gguf")


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingDependency, match=r"'gguf' is not installed; install it with: pip install 'hetsched\[gguf\]'"):
        reader.read(tmp_path / "m.gguf")
