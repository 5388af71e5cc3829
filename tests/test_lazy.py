"""Names imported at first use: the table of every package agrees with the imports for type checkers."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from hetsched.errors import MissingDependency
from hetsched.lazy import attach

PACKAGES = [
    "hetsched",
    *(f"hetsched.{name}" for name in ("frontends", "models", "models.ios", "report", "runtime", "search", "testing", "workloads")),
]


def read_by_type_checkers(package: str) -> set[tuple[str, str]]:
    """Return (module, name) of the imports under ``if TYPE_CHECKING``; a module of the package itself has no module."""
    tree = ast.parse(inspect.getsource(importlib.import_module(package)))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    imports = set()
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        imports |= {((node.module or "").removeprefix(package).removeprefix("."), alias.name) for alias in node.names}
    return imports


@pytest.mark.parametrize("package", PACKAGES)
def test_the_table_is_what_type_checkers_read(package):
    homes = importlib.import_module(package)._HOMES
    assert {(home, name) for home, names in homes.items() for name in names} == read_by_type_checkers(package)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_lazy_name_is_public_and_listed(package):
    module = importlib.import_module(package)
    names = {name for names in module._HOMES.values() for name in names}
    assert names <= set(module.__all__) <= set(dir(module))


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make a package with lazy names, one of which needs a missing library; return its name."""
    package = tmp_path / "some_lazy_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "home.py").write_text("value = 42\n")
    (package / "needs.py").write_text("import a_library_that_is_missing\n")
    (package / "broken.py").write_text("import another_that_is_missing\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "some_lazy_package"
    for name in [name for name in sys.modules if name.startswith("some_lazy_package")]:
        del sys.modules[name]


def test_a_name_is_imported_when_first_used_and_then_kept(library):
    module = importlib.import_module(library)
    load, names = attach(library, {"": ["broken", "home"], "home": ["value"]})
    assert {"home", "value"} <= set(names())
    assert "some_lazy_package.home" not in sys.modules
    assert load("value") == 42
    assert vars(module)["value"] == 42
    assert load("home") is sys.modules["some_lazy_package.home"]


def test_an_unknown_name_is_no_attribute(library):
    importlib.import_module(library)
    load, _ = attach(library, {"home": ["value"]})
    with pytest.raises(AttributeError, match="'some_lazy_package' has no attribute 'frobnicate'"):
        load("frobnicate")


def test_a_missing_library_is_named_with_its_extra_if_there_is_one(library):
    importlib.import_module(library)
    load, _ = attach(library, {"": ["broken", "needs"]}, extras={"a_library_that_is_missing": "some"})
    with pytest.raises(MissingDependency, match=r"a_library_that_is_missing.*hetsched\[some\]"):
        load("needs")
    with pytest.raises(ModuleNotFoundError, match="another_that_is_missing"):
        load("broken")


def test_importing_the_package_imports_neither_numba_nor_numpy():
    code = "import sys, hetsched; print(sorted({'numba', 'numpy', 'scipy', 'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
