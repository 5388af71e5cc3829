"""A call of a module, or a training step, recorded operator by operator on tensors without data."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map

from hetsched.errors import HetschedError, InvalidProblem, UnsupportedFeature
from hetsched.frontends.calling import check_call, name_of, needs_data, quiet, reason, remedy, without_caches
from hetsched.frontends.flops import Formulas
from hetsched.frontends.recorder import Reads, Recorder, Step, without_data

Module = torch.nn.Module


def record_call(
    model: Module | Callable[[], Module], args: tuple[Any, ...], kwargs: Mapping[str, Any], formulas: Formulas, *, run: bool = False
) -> Step:
    """Return one call of a module, without gradients: on fake tensors, or with `run` on its own weights and the arguments.

    Raises
    ------
    InvalidProblem
        The model cannot be made, or its arguments are others than those given.
    UnsupportedFeature
        It fails; its cause is the error of torch or the model.
    """

    def steps(recorder: Recorder, given: Any, _: dict[str, torch.Tensor]) -> None:
        positional, keywords = given
        reads = Reads(recorder) if run else contextlib.nullcontext()
        with torch.random.fork_rng([], enabled=run), torch.no_grad(), reads, recorder, recorder.attributes():
            result = recorder.called(*positional, **keywords)
        recorder.give(result)

    return _recorded(model, args, kwargs, (), formulas, steps, real=run)


def record_training(
    model: Module | Callable[[], Module],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    targets: tuple[Any, ...],
    loss: Callable[..., Any] | None,
    formulas: Formulas,
    *,
    accumulate: int = 1,
    autocast: torch.dtype | None = None,
) -> Step:
    """Return the forward pass of a module, its loss, and the backward pass, for each of `accumulate` parts of the batch.

    Raises
    ------
    InvalidProblem
        No parameter is trainable, the loss is not one number that depends on one, or the batch has no parts of equal size.
    UnsupportedFeature
        The step cannot be run with fake tensors.
    """

    def steps(recorder: Recorder, given: Any, trained: dict[str, torch.Tensor]) -> None:
        if not trained:
            raise InvalidProblem("no parameter of the model requires a gradient; use record() or capture() for the forward pass")
        total: dict[str, torch.Tensor] = {}
        with recorder:
            parts = _divided((*given, recorder.targets), accumulate)
        for positional, keywords, aims in parts:
            with torch.enable_grad(), recorder, recorder.attributes():
                with contextlib.nullcontext() if autocast is None else torch.autocast("cpu", dtype=autocast):
                    made = recorder.called(*positional, **keywords)
                    with recorder.within("loss"):
                        number = _loss(made, loss, aims)
                _check_loss(number, loss)
                if accumulate > 1:
                    with recorder.within("loss"):
                        number = number / accumulate
            with recorder, recorder.backwards():
                gradients = torch.autograd.grad(number, list(trained.values()), allow_unused=True)
                for name, gradient in zip(trained, gradients, strict=True):
                    with recorder.within(name.rpartition(".")[0]):
                        if gradient is not None:
                            total[name] = total[name] + gradient if name in total else gradient
        recorder.step.gradients |= {name: recorder.node(total[name]) for name in trained if name in total}
        recorder.find_changed()
        recorder.give(number)

    return _recorded(model, args, kwargs, targets, formulas, steps)


def _loss(made: Any, loss: Callable[..., Any] | None, targets: tuple[Any, ...]) -> Any:
    """Return the loss of an output: by the user's function, the output's own, or by default the mean."""
    if loss is not None:
        return loss(made, *targets)
    own = made.get("loss") if isinstance(made, Mapping) else getattr(made, "loss", None)
    if own is not None:
        return own
    return made.mean() if isinstance(made, torch.Tensor) and made.dim() and made.is_floating_point() else made


def _divided(given: Any, count: int) -> list[Any]:
    """Return arguments in `count` parts of the batch, the first dimension of the first tensor."""
    if count == 1:
        return [given]
    sizes = [leaf.shape[0] for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor) and leaf.dim()]
    if not sizes or sizes[0] % count:
        batch = f"the batch of the example is {sizes[0]}" if sizes else "the example has no batch"
        raise InvalidProblem(f"accumulate is {count}, but {batch}; give a number that divides it")
    size = sizes[0] // count

    def part(leaf: Any, number: int) -> Any:
        batched = isinstance(leaf, torch.Tensor) and leaf.dim() and leaf.shape[0] == sizes[0]
        return leaf[number * size : (number + 1) * size] if batched else leaf

    return [tree_map(lambda leaf, number=number: part(leaf, number), given) for number in range(count)]


def _check_loss(number: Any, loss: Any) -> None:
    what = f"loss {getattr(loss, '__name__', type(loss).__name__)}" if loss is not None else "the model"
    remedy = "" if loss is not None else "; pass a loss, a function of the model's output"
    if not isinstance(number, torch.Tensor):
        raise InvalidProblem(f"{what} returns a {type(number).__name__}, but training needs one number as a tensor{remedy}")
    if number.numel() != 1 or not number.is_floating_point():
        raise InvalidProblem(f"{what} returns {number.dtype} of shape {tuple(number.shape)}, but training needs one real number{remedy}")
    if not number.requires_grad:
        raise InvalidProblem(f"the result of {what} depends on no parameter that requires a gradient; unfreeze one, or remove no_grad")


def _recorded(
    model: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    targets: tuple[Any, ...],
    formulas: Formulas,
    steps: Callable[..., None],
    *,
    real: bool = False,
) -> Step:
    """Construct the model with fake parameters, or `real` ones, and record `steps` of it."""
    fake = contextlib.nullcontext() if real else FakeTensorMode(allow_non_fake_inputs=True)
    module = _made(model, fake)
    check_call(module, model, args, kwargs)
    named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    if real and any(tensor.is_meta for _, tensor in named):
        raise UnsupportedFeature(f"{name_of(model)} is on the meta device, but sizes or control flow depend on data; give it with weights")
    try:
        eager = torch.compiler.set_stance("force_eager")  # of compiled parts, the operators that they are made from
        with torch.inference_mode(False), _layers_written_out(), without_caches(module, kwargs), quiet(), eager, fake:
            tensors = _copies(named, real)
            recorder = Recorder(module, formulas, real=real)
            positional, keywords = recorder.arguments((args, dict(kwargs)), targets)
            trained = recorder.hold(tensors)

            step_module = _Whole(module, lambda: steps(recorder, (positional, keywords), trained))
            with recorder.named_modules():
                torch.func.functional_call(step_module, {f"module.{path}": tensor for path, tensor in tensors.items()}, ())
        return recorder.step
    except HetschedError:
        raise
    except Exception as error:  # any error of torch or the model's code
        if not real and needs_data(error):
            raise UnsupportedFeature(f"{name_of(model)} cannot be run on tensors without data: {reason(error)}") from error
        raise UnsupportedFeature(f"{name_of(model)} fails on the example: {reason(error)}; {remedy(error)}") from error


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Disable garbage collection: each collection visits the hundreds of thousands of objects that a recording keeps."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


class _Whole(Module):
    """A step as a call of one module, so that recomputation in the backward pass also reads the fake parameters."""

    def __init__(self, module: Module, run: Callable[[], None]) -> None:
        super().__init__()
        self.module, self.run = module, run

    def forward(self) -> None:
        """Run the step."""
        self.run()


def _made(model: Any, fake: contextlib.AbstractContextManager[Any]) -> Any:
    """Return the module, constructed without memory if possible."""
    if isinstance(model, Module):
        return model
    try:
        with fake:
            return model()
    except HetschedError:
        raise
    except Exception:  # its constructor may read values
        pass
    try:
        return model()
    except HetschedError:
        raise
    except Exception as error:
        raise InvalidProblem(f"{name_of(model)} fails: {reason(error)}; it must return a torch.nn.Module") from error


@contextlib.contextmanager
def _layers_written_out() -> Iterator[None]:
    """Disable kernels that run a layer of recurrent cells, or of an encoder, as one operator of unknown work."""
    cells, encoders = torch._C._get_mkldnn_enabled(), torch.backends.mha.get_fastpath_enabled()
    torch._C._set_mkldnn_enabled(False)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(cells)
        torch.backends.mha.set_fastpath_enabled(encoders)


def _copies(named: list[tuple[str, torch.Tensor]], real: bool) -> dict[str, torch.Tensor]:
    """Return tensors of the same shapes on the CPU, without data, or with `real` the same values; equal tensors share one."""
    made: dict[int, torch.Tensor] = {}
    for _, tensor in named:
        if id(tensor) not in made:
            copied = tensor.detach() if isinstance(tensor, torch.nn.Parameter) else tensor.clone()
            made[id(tensor)] = copied if real else without_data(tensor).requires_grad_(tensor.requires_grad)
    return {name: made[id(tensor)] for name, tensor in named}
