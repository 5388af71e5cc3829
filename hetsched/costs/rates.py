"""Measured rates of language models on devices, and the efficiencies that follow from them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from hetsched import documents
from hetsched.arguments import COUNT, checked, number, shown, whole
from hetsched.arrays import Frozen
from hetsched.chain.card import PARTS, ModelCard, chain_items
from hetsched.chain.machine import Efficiency, Machine
from hetsched.chain.workload import Workload
from hetsched.costs.devices import kind_of
from hetsched.costs.language import LanguageRoofline
from hetsched.errors import InvalidProblem
from hetsched.problem.cluster import Cluster, Device
from hetsched.problem.graph import is_text

_WIDEST = 40.0
"""Natural logarithm of the largest ratio of the two efficiencies that a fit tries, and of 1 over the least."""
_SAME = 1e-6
"""Relative difference of two ratios of times that counts as none."""
_WORD = re.compile(r"(pp|tg)(\d+)(?:@d?(\d+))?=([0-9.eE+-]+)")

_AMOUNTS = {
    "seconds": number(above=0, below=math.inf),
    **dict.fromkeys(("model_bytes", "parameters", "deviation"), number(0, below=math.inf).or_none),
}
_RULES = {**_AMOUNTS, **dict.fromkeys(("prompt", "output", "depth"), whole(0)), **dict.fromkeys(("batch", "chunk"), COUNT)}


class Rate(NamedTuple):
    """The time of one run: of a prompt, or of tokens that are generated one after the other."""

    device: str
    """A device's name or kind."""
    seconds: float
    prompt: int = 0
    """Tokens of the prompt of each sequence; 0 if it was not in the time."""
    output: int = 0
    """Tokens that were generated for each sequence; 0 if there were none."""
    depth: int = 0
    """Tokens in the KV cache of each sequence before."""
    batch: int = 1
    """Sequences."""
    chunk: int = 512
    """Most tokens of prompts that were computed at a time."""
    model: str = ""
    model_bytes: float | None = None
    """Of all weights; None if unknown."""
    parameters: float | None = None
    """Number of parameters; None if unknown."""
    deviation: float | None = None
    """Standard deviation of the seconds; None if unknown."""
    source: str = ""

    @property
    def tokens_per_second(self) -> float:
        """Tokens of all sequences per second."""
        return self.batch * (self.prompt + self.output) / self.seconds


class Rates(Frozen):
    """Measured rates of devices.

    Parameters
    ----------
    rows : iterable of Rate
        Seconds above 0; whole numbers of tokens.

    Raises
    ------
    InvalidProblem
        A number of a row breaks its rule.
    """

    _format = "hetsched-rates"
    rows: tuple[Rate, ...]

    @checked(InvalidProblem)
    def __init__(self, rows: Iterable[Rate]) -> None:
        self._set(rows=tuple(_valid(k, row) for k, row in enumerate(rows)))

    def __repr__(self) -> str:
        return f"<Rates of {', '.join(dict.fromkeys(row.device for row in self.rows)) or 'no device'}>"

    @checked
    def write(self, path: str | PathLike[str]) -> None:
        """Write the rates as a JSON document; ``hetsched.read`` reads it back to the bit."""
        documents.write(self, path)

    @classmethod
    @checked
    def parse(cls, text: str) -> Rates:
        """Return the rates of words such as ``gpu0:pp512=1450,tg128=38``: the device, then tokens of a prompt and per second, and tokens
        generated and per second; behind ``@`` the tokens in the KV cache before, as in ``tg128@4096=35``.

        Raises
        ------
        InvalidProblem
            The words are others.

        Examples
        --------
        >>> [(row.prompt, row.output, round(row.seconds, 3)) for row in Rates.parse("gpu0:pp512=1450,tg128=38").rows]
        [(512, 0, 0.353), (0, 128, 3.368)]
        """
        device, _, words = text.partition(":")
        found = [_WORD.fullmatch(word.strip()) for word in words.split(",")]
        rows = []
        for match in found:
            try:
                test, tokens, depth, speed = match.groups() if match else ("", "0", None, "")
                seconds = int(tokens) / float(speed)
            except (ValueError, ZeroDivisionError):
                seconds = 0.0
            if not device or not seconds > 0:
                raise InvalidProblem(
                    f"measured rates are {shown(text)}; give a device, and tokens per second of a prompt and of generation, as in "
                    "gpu0:pp512=1450,tg128=38"
                )
            prompt, output = (int(tokens), 0) if test == "pp" else (0, int(tokens))
            rows.append(Rate(device, seconds, prompt, output, int(depth or 0), source="stated"))
        return cls(rows)

    @classmethod
    @checked
    def read_llama_bench(cls, path: str | PathLike[str], *, device: str | None = None) -> Rates:
        """Return the rates of a file that ``llama-bench -o json`` has written.

        The model has to run on one device as a whole: ``-ngl 99 -sm none -mg 0`` for the first GPU, ``-dev none`` for the CPU. The KV
        cache counts as float16, the default.

        Parameters
        ----------
        path : path-like
        device : str, optional
            Name or kind of the device. Default: the kind of the GPU, or of the CPU, that the file names; for those that are not in the
            catalogue the GPU's name, or ``"cpu"``.

        Raises
        ------
        InvalidProblem
            The file is no such list, or the device of a row is not certain.
        """
        try:
            tests = msgspec.json.decode(Path(path).read_bytes(), type=list[dict[str, Any]])
            rows = [_of_test(test, device) for test in tests]
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            raise InvalidProblem(
                f"{path} is not what llama-bench -o json writes ({type(error).__name__}: {error}); give a list of objects with n_prompt, "
                "n_gen and avg_ts"
            ) from None
        return cls(rows)

    @checked
    def efficiency(
        self, machine: Machine, card: ModelCard | None = None, *, costs: LanguageRoofline | None = None
    ) -> dict[str, Efficiency]:
        """Return the efficiencies of the devices of a machine with which a cost model takes the measured times.

        Of each device, by its name or else its kind, the row with the longest prompt and the row with the most generated tokens count. The
        times of `LanguageRoofline` are sums of ``max(FLOPs / (compute peak), bytes / (memory bandwidth))``. With ``compute / memory`` held
        at r, both times are in inverse proportion to `memory`, so that r follows from their ratio, and then `memory` from one of them.

        Parameters
        ----------
        machine : hetsched.Machine
        card : ModelCard, optional
            The model that ran. Default: one block of as many bytes and parameters as the row states, all of them used for each token,
            without attention.
        costs : LanguageRoofline, optional
            The cost model; its own efficiencies do not count.

        Returns
        -------
        dict of str to Efficiency
            By the name of the device; those without rows are not in it.

        Raises
        ------
        InvalidProblem
            There are no rows of any device, not both of a device, the model is unknown, or the times tell nothing of an efficiency.
        """
        found = {}
        for device in machine.cluster.devices:
            rows = [row for row in self.rows if row.device == device.name] or [row for row in self.rows if row.device == device.kind]
            if rows:
                found[device.name] = _Fit(device, rows, card, costs or LanguageRoofline()).efficiency()
        if not found:
            raise InvalidProblem(
                f"the rates are of {', '.join(dict.fromkeys(shown(row.device) for row in self.rows)) or 'no device'}, and the machine has "
                f"{', '.join(f'{one.name} ({one.kind})' for one in machine.cluster.devices)}; name a device or its kind"
            )
        return found


def _valid(k: int, row: object) -> Rate:
    what = f"row {k} of rates"
    if not isinstance(row, Rate):
        raise InvalidProblem(f"{what} is {shown(row)}; it must be a hetsched.costs.Rate")
    for name, text in (("device", row.device), ("model", row.model), ("source", row.source)):
        if not is_text(text) or (name == "device" and not text):
            raise InvalidProblem(f"{name} of {what} is {shown(text)}; it must be {'non-empty ' * (name == 'device')}Unicode text")
    valid: dict[str, Any] = {name: rule.check(getattr(row, name), f"{name} of {what}", InvalidProblem) for name, rule in _RULES.items()}
    if not valid["prompt"] and not valid["output"]:
        raise InvalidProblem(f"prompt and output of {what} are 0; give the tokens that were measured")
    valid |= {name: float(valid[name]) for name in _AMOUNTS if valid[name] is not None}
    return row._replace(**valid)


def _of_test(test: Mapping[str, Any], device: str | None) -> Rate:
    """Return the row of one test of llama-bench."""
    prompt, output, speed = int(test["n_prompt"]), int(test["n_gen"]), float(test["avg_ts"])
    seconds = (prompt + output) / speed
    source = f"llama-bench {test.get('build_commit', '')} {test.get('backends', '')} {test.get('test_time', '')}"
    return Rate(
        _device_of(test) if device is None else device,
        seconds,
        prompt,
        output,
        int(test.get("n_depth", 0)),
        chunk=int(test.get("n_ubatch", 512)),
        model=str(test.get("model_type", "")),
        model_bytes=float(test["model_size"]) if test.get("model_size") else None,
        parameters=float(test["model_n_params"]) if test.get("model_n_params") else None,
        deviation=seconds * float(test["stddev_ts"]) / speed if "stddev_ts" in test else None,
        source=" ".join(source.split()),
    )


def _device_of(test: Mapping[str, Any]) -> str:
    """Return the kind, or else the name, of the only device that a test of llama-bench used."""
    gpus = [name.strip() for name in str(test.get("gpu_info", "")).split(",") if name.strip()]
    devices = str(test.get("devices", ""))
    chosen = re.fullmatch(r"\D+(\d+)", devices)
    if not gpus or devices == "none" or (test.get("n_gpu_layers") == 0 and test.get("no_op_offload")):
        return kind_of(str(test.get("cpu_info", ""))) or "cpu"
    if test.get("n_gpu_layers") == 0:
        raise InvalidProblem(
            f"llama-bench ran {shown(test.get('model_type'))} with -ngl 0 beside a GPU, which computes long prompts all the same; "
            "add -dev none"
        )
    one = 0 if len(gpus) == 1 else int(chosen[1]) if chosen else test.get("main_gpu") if test.get("split_mode") == "none" else None
    if not isinstance(one, int) or one >= len(gpus):
        raise InvalidProblem(
            f"llama-bench ran {shown(test.get('model_type'))} on {', '.join(gpus)} together; add -sm none -mg 0 to use the first alone, or "
            "name the device that was used"
        )
    return kind_of(gpus[one]) or gpus[one]


class _Fit:
    """The efficiencies of one device from a row of a prompt and a row of generation."""

    def __init__(self, device: Device, rows: list[Rate], card: ModelCard | None, costs: LanguageRoofline) -> None:
        prompts = [row for row in rows if row.prompt and not row.output and not row.depth]
        outputs = [row for row in rows if row.output and not row.prompt]
        models = list(dict.fromkeys(row.model for row in (*prompts, *outputs)))
        if not prompts or not outputs or len(models) > 1:
            problem = f"{len(models)} models, {', '.join(models)}" if len(models) > 1 else f"no {'generation' if prompts else 'prompt'}"
            raise InvalidProblem(
                f"the rates of device {device.name!r} have {problem}; give one prompt and one generation of one model, as llama-bench "
                "-p 512 -n 128 measures"
            )
        self.device, self.costs, self.bare = device, costs, replace(costs, item_seconds=0.0)
        self.prompt, self.output = max(prompts, key=lambda row: row.prompt), max(outputs, key=lambda row: row.output)
        self.card = _block(device, self.output) if card is None else card

    def efficiency(self) -> Efficiency:
        """Return the efficiencies."""
        from scipy.optimize import brentq

        measured = [self._without_items(row) for row in (self.prompt, self.output)]
        target = math.log(measured[0] / measured[1])

        def excess(ratio: float) -> float:
            """Return how much longer the prompt takes than measured, if generation takes its time, with compute / memory = exp(ratio)."""
            prompt, output = (self._modelled(row, ratio) for row in (self.prompt, self.output))
            return math.log(prompt / output) - target

        for end, bound, other in (
            (_WIDEST, "memory", "the peak; measure a longer prompt"),
            (-_WIDEST, "arithmetic", "the memory bandwidth"),
        ):
            if not math.copysign(1.0, end) * excess(end) < -_SAME:
                raise InvalidProblem(
                    f"the prompt of {self.prompt.prompt} tokens on device {self.device.name!r} took {self.prompt.seconds:.4g} s and "
                    f"{self.output.output} tokens of generation {self.output.seconds:.4g} s: by the cost model {bound} limits both, and "
                    f"nothing follows for {other}"
                )
        ratio = brentq(excess, -_WIDEST, _WIDEST, xtol=1e-14, rtol=1e-14)
        memory = self._modelled(self.output, ratio) / measured[1]
        return Efficiency(memory * math.exp(ratio), memory)

    def _modelled(self, row: Rate, ratio: float) -> float:
        """Return the seconds of a row with a memory efficiency of 1 and compute / memory = exp(ratio), without those per item."""
        return self._seconds(row, self.bare, Efficiency(math.exp(ratio), 1.0))

    def _without_items(self, row: Rate) -> float:
        """Return the measured seconds without those that the cost model adds per item."""
        whole = Efficiency(1.0, 1.0)
        added = self._seconds(row, self.costs, whole) - self._seconds(row, self.bare, whole)
        if not row.seconds > added:
            raise InvalidProblem(
                f"{row.prompt or row.output} tokens on device {self.device.name!r} took {row.seconds:.4g} s, and the cost model adds "
                f"{added:.4g} s for its items alone; give LanguageRoofline a smaller item_seconds than {self.costs.item_seconds:g}"
            )
        return row.seconds - added

    def _seconds(self, row: Rate, costs: LanguageRoofline, efficiency: Efficiency) -> float:
        """Return the seconds of a row on the device alone; generation begins behind `depth` tokens, one at least."""
        machine = Machine(Cluster([self.device]), efficiency={self.device.name: efficiency})
        work = Workload(row.prompt or max(row.depth, 1), row.output, sequences=row.batch, chunk=row.chunk)
        seconds = costs.chain(self.card, machine, work).seconds.sum()
        if row.output:
            seconds -= costs.chain(self.card, machine, replace(work, output=0)).seconds.sum()
        return float(seconds)


def _block(device: Device, row: Rate) -> ModelCard:
    """Return a card of one block with the bytes and parameters of a row."""
    if not row.model_bytes or not row.parameters:
        raise InvalidProblem(
            f"the rates of device {device.name!r} do not state the bytes and parameters of the model that ran; give its card, or rows with "
            "bytes and parameters, as llama-bench -o json has them"
        )
    amounts = np.zeros((2, 3, len(PARTS)))
    amounts[:, 1, PARTS.index("dense_ffn")] = row.parameters, row.model_bytes
    return ModelCard(row.model or "measured", "dense", 1, 1, chain_items([{}], 1), *amounts)
