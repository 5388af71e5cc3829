"""How kernels are compiled: typed, without the interpreter's lock, kept on disk where that is possible.

The compiled code is in `__pycache__` beside the sources, in ``$NUMBA_CACHE_DIR`` if that is set, else in the user's cache folder.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

import llvmlite.binding as llvm
import numba
import numpy as np
from numba import types
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

F = TypeVar("F", bound=Callable[..., Any])
KERNELS: list[Kernel] = []
"""Every kernel of the modules imported so far, in the order in which they were defined."""
SECONDS = 1.0
"""The seconds in the interpreter after which a linear kernel is compiled: about what that takes."""
LINEAR, NEARLY_LINEAR, REPEATED = 1_000_000, 300_000, 30_000
"""The most elements of arguments that the interpreter is given, which takes a few microseconds for each; the second where devices are
compared with one another, or tasks are looked at again, the third where all tasks are, up to some hundred times. Compiling takes one to
ten seconds."""
ELEMENT = 3e-6
"""Seconds of the interpreter for an element of a linear kernel, about: so measured with HEFT, 20,000 tasks and four devices."""
LATE = 0.3
"""Seconds by which a call of the interpreter may pass the end of the time."""
COMPILING = 10.0
"""Seconds that have to be left to compile the kernels of bounds and windows, which takes some two on an idle machine."""
_DIGEST = hashlib.sha256
_TOLD = "HETSCHED_KERNELS_NOT_KEPT"
"""The environment variable in which the process that said so leaves its number to those it starts."""


class _CheckedFile(IndexDataCacheFile):
    """Files of compiled code that end in a digest: damaged machine code is never run."""

    def _dump(self, obj: object) -> bytes:
        data: bytes = super()._dump(obj)
        return data + _DIGEST(data).digest()  # what follows a pickle is ignored when it is read

    def _load_data(self, name: str) -> Any:
        with open(self._data_path(name), "rb") as file:
            data = file.read()
        length = len(data) - _DIGEST().digest_size
        if length <= 0 or _DIGEST(data[:length]).digest() != data[length:]:
            raise pickle.UnpicklingError(f"{name} is damaged")
        return pickle.loads(data[:length])


def _used_modules(names: Mapping[str, object]) -> set[str]:
    """Return the modules of kernels from which a module's namespace has something, itself included if it is one."""
    homes = (value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None) for value in names.values())
    return {home for home in homes if isinstance(home, str) and home.endswith("kernels") and home in sys.modules}


@cache
def _used_by(module: str) -> set[str]:
    """Return the modules of kernels that a module of kernels uses, after its import."""
    return _used_modules(vars(sys.modules[module]))


@cache
def _digest(module: str) -> str:
    """Return a digest of the source of a module of kernels."""
    return _DIGEST(Path(str(sys.modules[module].__file__)).read_bytes()).hexdigest()


def _sources(function: Callable[..., Any]) -> dict[str, str]:
    """Return the digest of each module whose kernels may be compiled into a kernel, by name."""
    own, found = function.__module__, set[str]()
    waiting = _used_modules(function.__globals__)
    while waiting:
        found |= waiting
        waiting = {used for module in waiting - {own} for used in _used_by(module)} - found
    return {module: _digest(module) for module in (__name__, *sorted(found - {own}))}


class _Cache(FunctionCache):
    """A cache on disk that may fail: what cannot be read is compiled anew, what cannot be written is used all the same.

    It is valid for the sources of the kernel and of those that it calls; numba's own is for the kernel's file alone.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        file = self._cache_file
        self._cache_file = _CheckedFile(file._cache_path, self._impl.filename_base, (file._source_stamp, _sources(function)))

    def load_overload(self, sig: object, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # whatever pickle makes of damaged bytes
            with suppress(OSError):
                self.flush()  # an empty index, so that saving does not meet the same bytes
            return None

    def save_overload(self, sig: object, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _cannot_keep(error.strerror or str(error))


@cache
def _cannot_keep(reason: str) -> None:
    """Say once, in the first process and not in those it starts, that each compiles its kernels."""
    if os.environ.setdefault(_TOLD, str(os.getpid())) != str(os.getpid()):
        return
    warnings.warn(
        f"compiled kernels cannot be kept ({reason}), so every process compiles them anew, for seconds to minutes; "
        "set NUMBA_CACHE_DIR to a folder that can be written to",
        RuntimeWarning,
        stacklevel=2,
    )


class _InlinedLibrary(JITCodeLibrary):
    """The code of a kernel that only kernels call, kept as those need it: they optimise it with their own, and translate it.

    Its own translation would never run, and took a fifth of all compiling.
    """

    def _optimize_final_module(self) -> None:
        names = llvm.parse_assembly(str(self._codegen._create_empty_module(self.name)))
        self._shared_module, self._final_module = self._final_module, names
        for function in self._shared_module.functions:
            if not function.is_declaration and function.linkage == llvm.Linkage.external:
                function.linkage = "linkonce_odr"  # as numba does where a function is linked into several
        for variable in self._shared_module.global_variables:
            if variable.name.startswith("_ZN08NumbaEnv"):  # what numba fills in when it has compiled the kernel
                names.link_in(llvm.parse_assembly(f"@{variable.name} = common global i8* null"))


class _InlinedCompiler(Compiler):
    def compile_extra(self, func: Callable[..., Any]) -> Any:
        self.state.library = _InlinedLibrary(self.state.targetctx.codegen(), func.__name__)
        self.state.library.enable_object_caching()
        return super().compile_extra(func)


class Kernel:
    """A function that numba compiles at its first call, or takes from the cache on disk.

    If its time is about linear in the size of its arguments, calls with at most `most` elements run in the interpreter, together with
    the kernels that they call, as long as there is no compiled code and they have taken less than a second in all. So a first
    answer does not wait for a compiler, and one that is asked for often does not do without it.
    """

    most = -1  # none, even where all arguments are empty

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.py_func = function
        self.dispatcher = _dispatcher(function, options)
        self._numba_type_ = self.dispatcher._numba_type_  # what other kernels call
        self._compiled = False
        self._interpreted = 0.0  # seconds
        KERNELS.append(self)

    def __call__(self, *args: Any) -> Any:
        interpreting = _interpreting.get()
        if interpreting is None:  # the kernel decides
            if self._compiled:
                return self.dispatcher(*args)
            if self._may_interpret(args):
                return self._interpret(args)
            if _time_left.get() is not None and not self._on_disk(args):
                raise NotCompiled(self.py_func.__name__)
        elif interpreting:
            return self.py_func(*args)
        result = self.dispatcher(*args)
        self._compiled = True
        return result

    def _may_interpret(self, args: tuple[Any, ...]) -> bool:
        elements, left = size(args), _time_left.get()
        if elements > self.most or self._interpreted >= SECONDS or self._on_disk(args):
            return False
        return left is None or elements * ELEMENT * LINEAR / self.most <= left() + LATE

    def _interpret(self, args: tuple[Any, ...]) -> Any:
        start = time.perf_counter()
        with interpreter():
            result = self.py_func(*args)
        self._interpreted += time.perf_counter() - start
        return result

    def _on_disk(self, args: tuple[Any, ...]) -> bool:
        """Return whether the cache has code for such arguments."""
        dispatcher = self.dispatcher
        signature = tuple(map(dispatcher.typeof_pyval, args))
        try:
            return dispatcher._cache._index_key(signature, dispatcher.targetctx.codegen()) in dispatcher._cache._cache_file._load_index()
        except Exception:  # whatever pickle makes of damaged bytes, and where there is no cache
            return False

    @property
    def signatures(self) -> list[Any]:
        """The types of arguments for which there is compiled code in this process."""
        return self.dispatcher.signatures  # type: ignore[no-any-return]

    @property
    def stats(self) -> Any:
        """How often code was taken from the disk, by signature."""
        return self.dispatcher.stats


def size(value: object) -> int:
    """Return the number of elements of all arrays in arguments."""
    return sum(map(size, value)) if isinstance(value, tuple) else getattr(value, "size", 1)


_interpreting: ContextVar[bool | None] = ContextVar("interpreting", default=None)
_time_left: ContextVar[Callable[[], float] | None] = ContextVar("time_left", default=None)


class NotCompiled(Exception):
    """A kernel would have to be compiled now, in a context of `without_compiling`."""


@contextmanager
def without_compiling(time_left: Callable[[], float]) -> Iterator[None]:
    """Raise `NotCompiled` within the context where a kernel would be compiled, or would take the interpreter longer than is left."""
    token = _time_left.set(time_left)
    try:
        yield
    finally:
        _time_left.reset(token)


def kernels_in_time(left: float) -> AbstractContextManager[None]:
    """Return a context that raises `NotCompiled` where a kernel would have to be compiled with less than `COMPILING` seconds left."""
    return without_compiling(lambda: left) if left < COMPILING else nullcontext()


@contextmanager
def interpreter(on: bool = True) -> Iterator[None]:
    """Run all kernels in the interpreter within the context, or none."""
    token = _interpreting.set(on)
    try:
        with np.errstate(all="ignore"):  # compiled code has no warnings
            yield
    finally:
        _interpreting.reset(token)


def _dispatcher(function: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    dispatcher = numba.njit(nogil=True, **options)(function)
    resolve = dispatcher.get_call_template

    def resolve_values(args: Any, kws: Any) -> Any:
        """Resolve a call by another kernel; numba would compile the callee once more for each constant argument."""
        return resolve(tuple(map(types.unliteral, args)), {name: types.unliteral(kind) for name, kind in kws.items()})

    dispatcher.get_call_template = resolve_values
    try:
        dispatcher._cache = _Cache(function)
    except RuntimeError:  # numba finds no folder that it may write to
        _cannot_keep("no folder for them is writable")
    return dispatcher


def _compile(function: F, **options: Any) -> F:
    return cast(F, Kernel(function, options))


def linear(kernel: F) -> F:
    """Declare that a kernel's time is about linear in the size of its arguments, so that the interpreter can run all but large ones."""
    cast(Kernel, kernel).most = LINEAR
    return kernel


def nearly_linear(kernel: F) -> F:
    """Declare the same of a kernel whose time is several times its linear part."""
    cast(Kernel, kernel).most = NEARLY_LINEAR
    return kernel


def repeated(kernel: F) -> F:
    """Declare the same of a kernel whose time is up to a hundred times its linear part."""
    cast(Kernel, kernel).most = REPEATED
    return kernel


def builder(function: F) -> F:
    """Compile what may make arrays."""
    return _compile(function)


# A tuple of fifty arrays costs fifty atomic counts up and down in every call that takes it. Without them a kernel is
# several times as fast, and compiled in a third of the time; it must not make arrays, which numba sees to.


def kernel(function: F) -> F:
    """Compile what Python calls, without reference counts."""
    return _compile(function, _nrt=False)


def inner(function: F) -> F:
    """Compile what only kernels call, into them and without reference counts; calling it from Python crashes.

    A call that is not inlined copies every array of its tuples. The wrappers that it has none of take long to compile for
    tuples of many arrays.
    """
    return _compile(function, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True, pipeline_class=_InlinedCompiler)
