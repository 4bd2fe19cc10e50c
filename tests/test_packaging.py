"""The package as a whole: its version, its layers, what importing it costs, and the form of its files."""

import ast
import importlib.metadata
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import stockade

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "stockade"
FILES = sorted(PACKAGE.rglob("*.py"))
FACADE = "stockade"  # stockade/__init__.py, which offers what make and api have
MAX_LINES = 420

# Lowest first. A layer may import itself and those before it; two on one line know nothing of each other.
LAYERS: list[set[str]] = [
    {"cores", "errors", "startup"},
    {"figures", "files", "text"},
    {"cage2"},
    {"vector"},
    {"make"},
    {FACADE},
    {"baselines", "integrations"},
    {"learn"},
    {"workflow"},
    {"bench", "replay", "report"},
    {"api"},
    {"cli"},
    {"__main__"},
]
HEIGHT = {layer: height for height, layers in enumerate(LAYERS) for layer in layers}


def module_name(path: Path) -> str:
    """`stockade/cage2/env.py` -> `stockade.cage2.env`; a package's `__init__.py` -> the package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(module: str) -> str:
    """`stockade.cage2.env` -> `cage2`; `stockade` itself -> the facade."""
    return module.split(".")[1] if "." in module else FACADE


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Line and module of every import of ours in a file, also those inside functions."""
    package = module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - (node.level - 1)] if node.level else []
            base = ".".join([*above, node.module] if node.module else above)
            # `from stockade import x`: x is a layer of that name, or else a name that the facade defines
            names = [f"{base}.{a.name}" if base == FACADE and a.name in HEIGHT else base for a in node.names]
        else:
            continue
        yield from ((node.lineno, name) for name in names if name.split(".")[0] == "stockade")


def test_version_is_that_of_the_installed_metadata() -> None:
    assert stockade.__version__ == importlib.metadata.version("stockade")


def test_every_module_has_a_layer() -> None:
    homeless = {layer_of(module_name(path)) for path in FILES} - HEIGHT.keys()
    assert not homeless, f"give {sorted(homeless)} a place in LAYERS"


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_imports_point_downwards(path: Path) -> None:
    here = layer_of(module_name(path))
    upwards = [
        f"line {line} imports {module}"
        for line, module in imports_of(path)
        if layer_of(module) != here and HEIGHT[layer_of(module)] >= HEIGHT[here]
        if (here, layer_of(module)) != (FACADE, "api")  # whose functions import what they need when they are called
    ]
    assert not upwards, f"{path.relative_to(ROOT)} belongs to the layer {here}: {'; '.join(upwards)}"


def test_import_loads_no_optional_package() -> None:
    optional = {"torch", "ray", "stable_baselines3", "sb3_contrib", "matplotlib", "tensorboard", "CybORG", "gym"}
    optional |= {"numba.cuda", "jax", "pettingzoo", "tyro", "tqdm", "bokeh", "safetensors"}
    code = "import stockade, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "stockade" in loaded
    unwanted = optional & set(loaded)
    assert not unwanted, f"import stockade loads {sorted(unwanted)}"


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_module_says_what_it_is_for_and_is_short(path: Path) -> None:
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text)), f"{path.relative_to(ROOT)} has no module docstring"
    assert text.count("\n") <= MAX_LINES, f"{path.relative_to(ROOT)} is longer than {MAX_LINES} lines: split it"


def test_types_are_published() -> None:
    assert (PACKAGE / "py.typed").is_file()
