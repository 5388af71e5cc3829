"""Times and bytes of a language model's items, from its card and the devices' data sheets."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hetsched.arguments import COUNT, checked
from hetsched.arrays import FloatArray
from hetsched.chain.card import PARTS, ModelCard
from hetsched.chain.machine import Efficiency, Machine
from hetsched.chain.problem import ChainProblem
from hetsched.chain.serving import ServingProblem
from hetsched.chain.workload import Workload
from hetsched.costs.roofline import bandwidth_of, peak_of
from hetsched.errors import InvalidProblem, UnsupportedFeature

_EXPERTS, _TABLE = PARTS.index("experts"), PARTS.index("table")
TOKEN_BYTES = 4.0
"""Bytes of a token's number, which the last stage sends to the first."""


@checked
@dataclass(frozen=True)
class LanguageRoofline:
    """The roofline of a language model: an item is bound by arithmetic or by memory traffic.

    T new tokens take an item ``item_seconds + max(FLOPs / (compute peak), bytes / (memory bandwidth))`` with

    - FLOPs ``2 T (N_d + k N_e)`` for its N_d dense parameters and the N_e of each of its k experts used, or T times the `token_flops` of
      the card, the head's for the tokens whose successor is wanted, and ``2 T heads (key_size + value_size) x`` for attention to x tokens
      in the mean, at most `window`, all of the prompt if the model does not decode;
    - bytes of the dense weights and of the experts that T tokens meet, ``E (1 - (1 - k / E)^T)`` of E if routing is uniform and
      independent, and of the KV cache that is read and written.

    A prompt is computed in chunks, which each read the weights. Sizes of tokens are summed exactly, not taken at their mean.

    Parameters
    ----------
    dtype : str
        Key of a device's `peak_flops`.
    compute, memory : float
        Shares of the peak and of the memory bandwidth that are reached, in (0, 1]. The defaults are guesses; a machine that states the
        efficiency of a device, as measured, is asked first.
    item_seconds : float
        Time of an item beside its work, each time it runs.
    """

    dtype: str = "float16"
    compute: float = 0.5
    memory: float = 0.75
    item_seconds: float = 1e-5

    def __post_init__(self) -> None:
        for name, share in (("compute", self.compute), ("memory", self.memory)):
            if not 0 < share <= 1:
                raise InvalidProblem(f"{name} is {share!r}; it must be a share of the data sheet's figure in (0, 1]")
        if not 0 <= self.item_seconds < math.inf:
            raise InvalidProblem(f"item_seconds is {self.item_seconds!r}; it must be a finite number of seconds from 0")

    @checked(in_progress=COUNT, tensors_sent=COUNT)
    def chain(
        self, card: ModelCard, machine: Machine, work: Workload, *, in_progress: int = 1, tensors_sent: int = 1, overlap: bool = False
    ) -> ChainProblem:
        """Return the problem of a workload.

        Parameters
        ----------
        card : ModelCard
        machine : hetsched.Machine
        work : Workload
        in_progress : int
            Microbatches into which the sequences are divided, rounded up; the times are those of one microbatch.
        tensors_sent : int
            Tensors of the model's width that a token takes from a stage to the next.
        overlap : bool
            Whether the stages compute the chunks of a prompt one behind the other, as llama.cpp does where all layers are on GPUs.
            Otherwise a chunk has passed all stages before the next one begins.

        Raises
        ------
        InvalidProblem
            A device has no peak for the dtype, or no memory bandwidth.
        UnsupportedFeature
            The model has no decoder, and output is asked for.
        """
        if work.output and not card.decodes:
            raise UnsupportedFeature(f"model {card.name!r} of {card.family} has no chain that decodes; give a workload with output=0")
        batch, (peak, bandwidth) = math.ceil(work.sequences / in_progress), reached(self, machine)
        chunks = math.ceil(work.prompt * batch / work.chunk)
        again = (chunks - 1) / chunks if overlap else 0.0
        seconds, overlapped = np.zeros((2, card.n_items, len(peak)))
        for rows in alike(card):
            runs = LanguageWork(card, int(rows[0]), work).runs(batch)
            steps = np.maximum(runs.flops[:, None] / peak, runs.bytes[:, None] / bandwidth)
            seconds[rows] = self.item_seconds * len(runs.flops) + steps.sum(axis=0)
            overlapped[rows] = again * (self.item_seconds * chunks + steps[:chunks].sum(axis=0))
        width = batch * card.width * work.activation_bytes * tensors_sent
        return held(card, machine, work, in_progress=in_progress).replace(
            seconds=np.where(machine.computes, seconds, np.inf),
            hops=messages(machine, chunks + work.output, (work.prompt + work.output) * width),
            overlapped_seconds=overlapped,
            overlapped_hops=messages(machine, again * chunks, again * work.prompt * width),
            closing=messages(machine, work.output, batch * TOKEN_BYTES * work.output),
        )

    @checked
    def serving(self, card: ModelCard, machine: Machine, work: Workload) -> ServingProblem:
        """Return the problem of serving a model's blocks with all devices of a machine, in tokens of output per second.

        A device with an interval of L blocks has room for s sequences, at most those of the workload; each is on its way through about
        n / L devices, so a device works on ``s L / n`` at a time, whose prompts and outputs take it the time of `chain`. All blocks
        count as the largest, and each interval as if it had the embedding and the head too: no table is too high for that.

        Parameters
        ----------
        card : ModelCard
        machine : hetsched.Machine
            Devices of one kind, memory and speed are a type, named by its kind, or by the first of them where another type has the kind.
        work : Workload
            Its sequences are the most that a device has at a time.

        Raises
        ------
        InvalidProblem
            A device has no peak for the dtype, or no memory bandwidth.
        UnsupportedFeature
            No output is asked for.
        """
        if not work.output:
            raise UnsupportedFeature("serving counts tokens of output, and output is 0; ask for one at least, or for another regime")
        n, bare = card.n_blocks, held(card, machine, work)
        blocks, ends = slice(1, n + 1), [0, n + 1]
        weights, caches = bare.weight_bytes[blocks].max(), bare.cache_bytes[blocks].max() / work.sequences
        fixed = bare.weight_bytes[ends].sum() - bare.shared_bytes + bare.workspace_bytes.max()
        length = np.arange(1, n + 1)
        with np.errstate(divide="ignore"):
            room = (bare.memory_bytes[:, None] - fixed - length * weights) / (length * caches)  # [m, n]
        room = np.floor(np.clip(room, 0, work.sequences))
        share = room * length / n
        batch = np.maximum(np.floor(share), 1)
        seconds = np.zeros(batch.shape)
        for count in np.unique(batch):
            problem = self.chain(card, machine, dataclasses.replace(work, sequences=int(count)))
            own = np.outer(problem.seconds[blocks].max(axis=0), length) + problem.seconds[ends].sum(axis=0)[:, None]
            seconds = np.where(batch == count, own, seconds)
        rate = np.where(room > 0, batch * work.output / seconds * np.minimum(share / batch, 1.0), 0.0)
        kinds = types_of(machine)
        order = [k for _, members in kinds for k in members]
        links = _link_rates(card, machine, work, order)
        return ServingProblem(
            n,
            [name for name, _ in kinds],
            [len(members) for _, members in kinds],
            [rate[members[0]] for _, members in kinds],
            links=None if links.min() >= rate.max() else links,
        )


def types_of(machine: Machine) -> list[tuple[str, list[int]]]:
    """Return the name and the devices of each type of a machine, in the order of a serving problem."""
    alike: dict[tuple[object, ...], list[int]] = {}
    for k, facts in enumerate(kinds_of(machine)):
        alike.setdefault(facts, []).append(k)
    kinds = Counter(str(key[0]) for key in alike)
    devices = machine.cluster.devices
    return [(str(key[0]) if key[0] and kinds[str(key[0])] == 1 else devices[own[0]].name, own) for key, own in alike.items()]


def kinds_of(machine: Machine) -> list[tuple[object, ...]]:
    """Return what devices of one type have in common, by device: its kind, first, memory and speeds."""
    return [
        (device.kind, usable, tuple(sorted(device.peak_flops.items())), device.memory_bandwidth, machine.efficiency.get(device.name))
        for device, usable in zip(machine.cluster.devices, machine.usable_bytes.tolist(), strict=True)
    ]


def _link_rates(card: ModelCard, machine: Machine, work: Workload, order: list[int]) -> FloatArray:
    """Return the tokens of output per second that each link carries [m + 1, m + 1], with those of their prompts."""
    each = card.width * work.activation_bytes * (work.prompt + work.output) / work.output
    links = np.full((len(order) + 1, len(order) + 1), np.inf)
    links[:-1, :-1] = machine.cluster.route_bandwidth[np.ix_(order, order)] / each
    np.fill_diagonal(links, np.inf)
    return links


def reached(costs: LanguageRoofline, machine: Machine) -> tuple[FloatArray, FloatArray]:
    """Return the FLOP/s and the bytes per second that each device reaches; 1 for a device that does not compute."""
    devices = machine.cluster.devices
    shares = [machine.efficiency.get(device.name, Efficiency(costs.compute, costs.memory)) for device in devices]
    rows = list(zip(shares, devices, machine.computes.tolist(), strict=True))
    peak = np.array([share.compute * peak_of(device, costs.dtype) if computes else 1.0 for share, device, computes in rows])
    return peak, np.array([share.memory * bandwidth_of(device) if computes else 1.0 for share, device, computes in rows])


@checked(in_progress=COUNT)
def held(card: ModelCard, machine: Machine, work: Workload, *, in_progress: int = 1) -> ChainProblem:
    """Return the problem of the bytes alone, which takes no time: the peaks and bandwidths of the devices are not needed.

    Parameters
    ----------
    card : ModelCard
    machine : hetsched.Machine
    work : Workload
    in_progress : int
        Microbatches into which the sequences are divided, rounded up.
    """
    return ChainProblem(
        card.items.name.tolist(),
        machine.cluster.names,
        np.where(machine.computes, np.zeros((card.n_items, 1)), np.inf),
        weight_bytes=card.weights,
        cache_bytes=work.sequences * np.minimum(work.tokens, card.items.window) * card.items.cache_numbers * work.cache_bytes,
        workspace_bytes=_workspace(card, work, math.ceil(work.sequences / in_progress)),
        memory_bytes=machine.usable_bytes,
        shared_bytes=card.weight_bytes[-1, _TABLE] if card.tied else 0.0,
    )


class Runs(NamedTuple):
    """The runs of an item, of the chunks of a prompt and of each token after it: their tokens, FLOPs and bytes."""

    tokens: FloatArray
    flops: FloatArray
    bytes: FloatArray


class LanguageWork:
    """FLOPs and bytes of the runs of an item, with its experts or without."""

    def __init__(self, card: ModelCard, i: int, work: Workload, *, experts: bool = True) -> None:
        row, self.work = {name: card.items[name][i] for name in card.items.names}, work
        self.kind, self.window, self.causal = row["kind"], float(row["window"]), card.decodes
        self.heads = row["heads"]
        self.sizes = row["key_size"] + row["value_size"], row["decode_key_size"] + row["decode_value_size"]
        self.used = row["experts_used"] / row["experts"] if row["experts"] and experts else 0.0
        self.cache = row["cache_numbers"] * work.cache_bytes
        self.width = card.width * work.activation_bytes
        dense = np.arange(len(PARTS)) != _EXPERTS
        if self.kind == "embed":
            dense[_TABLE] = False  # a lookup
        self.parameters, self.bytes = (float(table[i, dense].sum()) for table in (card.parameters, card.weight_bytes))
        self.token_flops = 2 * self.parameters if card.token_flops is None else float(card.token_flops[i])
        self.expert_parameters, self.expert_bytes = (float(table[i, _EXPERTS]) for table in (card.parameters, card.weight_bytes))

    def runs(self, batch: int) -> Runs:
        """Return all runs of a batch of sequences."""
        return Runs(*map(np.concatenate, zip(self.prompt(batch), self.output(batch), strict=True)))

    def prompt(self, batch: int) -> Runs:
        """Return each chunk of the prompts of a batch, one sequence after the other."""
        p, total = self.work.prompt, self.work.prompt * batch
        ends = np.minimum(np.arange(1, math.ceil(total / self.work.chunk) + 1) * self.work.chunk, total).astype(float)
        starts = np.concatenate([[0.0], ends[:-1]])
        attended = self._attended(ends, p) - self._attended(starts, p)
        finished = ends // p - starts // p  # sequences that end in the chunk
        read = finished * min(p, self.window) + np.minimum(ends % p, self.window)
        wanted = finished if self.kind == "head" else ends - starts
        return self._work(ends - starts, wanted, attended * self.sizes[0], read)

    def output(self, batch: int) -> Runs:
        """Return each further token of the sequences of a batch."""
        context = np.minimum(self.work.prompt + np.arange(1.0, self.work.output + 1), self.window)
        tokens = np.full(self.work.output, float(batch))
        return self._work(tokens, tokens, batch * context * self.sizes[1], batch * context)

    def _attended(self, tokens: FloatArray, p: int) -> FloatArray:
        """Return how many tokens the first `tokens` of all prompts attend to, in all; those of an encoder attend to the whole prompt."""
        rest, most = tokens % p, min(p, self.window)
        if not self.causal:
            return tokens * most
        within = np.minimum(rest, most)
        whole = most * (most + 1) / 2 + (p - most) * most
        attended: FloatArray = tokens // p * whole + within * (within + 1) / 2 + (rest - within) * most
        return attended

    def _work(self, tokens: FloatArray, wanted: FloatArray, attention: FloatArray, read: FloatArray) -> Runs:
        """Return runs: by their tokens, those whose result is wanted, products of attention, and cached tokens read."""
        flops = wanted * self.token_flops + 2 * tokens * self.used * self.expert_parameters + 2 * self.heads * attention
        met = 1 - (1 - self.used) ** tokens
        weights = np.where(wanted > 0, self.bytes, 0.0) + met * self.expert_bytes
        return Runs(tokens, flops, weights + (read + tokens) * self.cache + 2 * tokens * self.width)


def alike(card: ModelCard) -> list[np.ndarray]:
    """Return the items in groups of equal rows."""
    items = card.items
    columns = [items[name] for name in items.names if name not in ("name", "kind", "workspace_numbers")]
    counted = [] if card.token_flops is None else [card.token_flops]
    table = np.column_stack([*(column.astype(float) for column in columns), card.parameters, card.weight_bytes, *counted])
    kind = np.unique(items.kind.astype(str), return_inverse=True)[1]
    _, group = np.unique(np.column_stack([kind, table]), axis=0, return_inverse=True)
    return [np.flatnonzero(group.ravel() == g) for g in range(group.max() + 1)]


def _workspace(card: ModelCard, work: Workload, batch: int) -> FloatArray:
    """Return the bytes that the largest activations of each item need for the tokens of a chunk."""
    tokens = max(min(work.chunk, work.prompt * batch), batch if work.output else 1)
    numbers: FloatArray = tokens * card.items.workspace_numbers * work.activation_bytes
    numbers[-1] += tokens * 4.0 * card.n_logits
    return numbers


def messages(machine: Machine, count: float, total: float) -> FloatArray:
    """Return the seconds of messages between each two devices; inf where there is no route."""
    cluster = machine.cluster
    with np.errstate(divide="ignore", invalid="ignore"):
        seconds: FloatArray = count * cluster.route_latency + total / cluster.route_bandwidth
    seconds[cluster.route_bandwidth == 0] = np.inf
    np.fill_diagonal(seconds, 0.0)
    return seconds
