"""Compiled code on disk: used if it is intact, and not needed if it cannot be written."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numba.core import caching, config

from hetsched import compiled

SOURCE = """
from hetsched.compiled import builder

@builder
def twice(x):
    return 2 * x
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a module with one kernel, whose code is kept in `__pycache__` beside it, whatever cache folder the caller has set."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(config, "CACHE_DIR", "")
    path = tmp_path / "kernels.py"
    path.write_text(SOURCE)
    return path


def loaded(path: Path) -> ModuleType:
    """Import the module again, as another process would."""
    spec = importlib.util.spec_from_file_location("kernels", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def hits(path: Path) -> int:
    """Return the number of cache hits of a newly loaded kernel, after a check of its result."""
    kernel = loaded(path).twice
    assert kernel(21) == 42
    return sum(kernel.stats.cache_hits.values())


@pytest.fixture
def linear(source: Path) -> compiled.Kernel:
    """A linear kernel of arrays, of which no code is on disk yet."""
    source.write_text(SOURCE.replace("builder", "builder, linear", 1).replace("@builder", "@linear\n@builder"))
    kernel = loaded(source).twice
    assert isinstance(kernel, compiled.Kernel)
    return kernel


def test_a_linear_kernel_without_code_runs_in_the_interpreter(linear, source):
    assert linear(21) == 42
    assert linear.signatures == []
    with compiled.interpreter(on=False):
        assert linear(21) == 42
    assert len(linear.signatures) == 1
    again = loaded(source).twice
    assert again(21) == 42
    assert len(again.signatures) == 1, "its code is on disk"
    with compiled.interpreter():
        assert again("ab") == "abab", "which numba cannot do"


def test_a_kernel_is_not_compiled_where_only_compiled_code_may_run(linear, source):
    kernel = loaded(source).twice
    kernel.most = -1
    with compiled.without_compiling(lambda: 1.0), pytest.raises(compiled.NotCompiled, match="twice"):
        kernel(21)
    assert kernel.signatures == []
    with compiled.without_compiling(lambda: 1.0):
        assert linear(21) == 42, "in the interpreter"
        assert linear(np.ones(400_000))[0] == 2.0, "in about a second"
    with compiled.without_compiling(lambda: 0.5), pytest.raises(compiled.NotCompiled):
        linear(np.ones(400_000))
    assert kernel(21) == 42
    with compiled.without_compiling(lambda: 1.0):
        again = loaded(source).twice
        again.most = -1
        assert again(21) == 42, "its code is on disk"


def test_another_kernel_is_compiled_even_for_empty_arguments(source):
    kernel = loaded(source).twice
    assert kernel(np.empty(0)).size == 0
    assert len(kernel.signatures) == 1


@pytest.mark.parametrize(("declare", "most"), [(compiled.linear, compiled.LINEAR), (compiled.nearly_linear, compiled.NEARLY_LINEAR)])
def test_a_linear_kernel_is_compiled_for_large_arguments(linear, declare, most):
    declare(linear)
    assert linear(np.ones(most))[0] == 2.0
    assert len(linear.signatures) == 0
    assert linear(np.ones(most + 1))[0] == 2.0
    assert len(linear.signatures) == 1


def test_a_linear_kernel_is_compiled_after_a_second_in_the_interpreter(linear, monkeypatch):
    moments = iter([0.0, 0.6, 1.0, 1.6])
    monkeypatch.setattr(compiled.time, "perf_counter", lambda: next(moments))
    assert [linear(x) for x in (1, 2)] == [2, 4]
    assert linear.signatures == []
    assert linear(3) == 6
    assert len(linear.signatures) == 1


def test_every_kernel_is_listed(source):
    kernel = loaded(source).twice
    assert compiled.KERNELS[-1] is kernel


def test_code_is_kept_on_disk(source):
    assert hits(source) == 0
    assert hits(source) == 1


def test_a_kernel_that_only_kernels_call_is_on_disk_without_machine_code(source):
    rows = "from hetsched.compiled import inner\n" + SOURCE.replace("@builder", "@inner")
    calls = "".join(
        f"\n\n@builder\ndef {name}(x):\n    return twice(x) + twice({number})\n" for name, number in (("first", 1), ("other", 2))
    )
    source.write_text(rows + calls)
    fresh = loaded(source)
    assert fresh.first(20) == 42
    again = loaded(source)
    assert again.other(19) == 42
    assert sum(again.twice.stats.cache_hits.values()) == 1
    (overload,) = fresh.twice.dispatcher.overloads.values()
    assert "define" not in overload.library.get_llvm_str()


@pytest.mark.slow
def test_code_is_compiled_anew_after_a_change_of_a_kernel_that_it_calls(tmp_path):
    (tmp_path / "base_kernels.py").write_text(SOURCE)
    (tmp_path / "middle_kernels.py").write_text("import base_kernels\n")
    (tmp_path / "top_kernels.py").write_text(
        "import middle_kernels\nfrom hetsched.compiled import builder\n\n@builder\n"
        "def top(x):\n    return middle_kernels.base_kernels.twice(x)\n"
    )
    command = [sys.executable, "-c", "from top_kernels import top; print(top(21), sum(top.stats.cache_hits.values()))"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def answer() -> str:
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert [answer(), answer()] == ["42 0\n", "42 1\n"]
    (tmp_path / "base_kernels.py").write_text(SOURCE.replace("2 *", "3 *"))
    assert [answer(), answer()] == ["63 0\n", "63 1\n"]


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def empty(data: bytes) -> bytes:
    return b""


def flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def text(data: bytes) -> bytes:
    return b"no pickle\n"


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", [cut, empty, flip, text])
def test_damaged_code_is_compiled_anew_and_replaced(source, ending, damage):
    hits(source)
    (file,) = source.parent.glob(f"__pycache__/*.{ending}")
    file.write_bytes(damage(file.read_bytes()))
    hits(source)
    assert hits(source) == 1, "the damaged file is replaced"


@pytest.fixture
def _not_warned_yet(monkeypatch):
    compiled._cannot_keep.cache_clear()
    monkeypatch.setenv(compiled._TOLD, str(os.getpid()))  # so that it is restored after the test
    yield
    compiled._cannot_keep.cache_clear()


@pytest.mark.usefixtures("_not_warned_yet")
def test_a_full_disk_causes_a_warning_and_no_failure(source, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(caching.IndexDataCacheFile, "_save_data", full)
    with pytest.warns(RuntimeWarning, match=r"No space left on device.*NUMBA_CACHE_DIR"):
        assert hits(source) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # one warning in all, not one per kernel
        assert hits(source) == 0


@pytest.mark.usefixtures("_not_warned_yet")
def test_without_a_folder_to_write_to_kernels_work_after_one_note(source, monkeypatch):
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    with pytest.warns(RuntimeWarning, match="NUMBA_CACHE_DIR") as notes:
        assert hits(source) + hits(source) == 0
    assert len(notes) == 1


def test_an_installation_that_cannot_be_written_to_works_without_a_home(source):
    (source.parent / "__pycache__").write_text("where the folder would be")
    away = {"HOME": os.devnull, "XDG_CACHE_HOME": os.devnull, "PYTHONPATH": os.pathsep.join([str(source.parent), *sys.path])}
    again = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import kernels; kernels.twice(1)'], check=True)"
    command = [sys.executable, "-c", f"import kernels; print(kernels.twice(21), flush=True); {again}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **away})
    assert done.stdout == "42\n", done.stderr
    assert done.stderr.count("NUMBA_CACHE_DIR") == 1, "nor do processes say it that this one starts"
