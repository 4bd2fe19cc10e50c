"""Constraints for pip, of pyproject.toml: `python tests/release/dependencies.py oldest` prints the oldest versions that
it allows, `newest` none. In both, what only developers need has the version in constraints.txt, and so has Torch: other
versions of it are gigabytes to download. The least version of Torch is therefore not tested."""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OURS = ("dev", "docs")  #: extras for developers
FIXED = ("torch",)  #: the tested version in every environment


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def oldest() -> dict[str, str]:
    """Packages that users get, by the core or an extra, and the least version of each."""
    extras = [needs for extra, needs in project()["optional-dependencies"].items() if extra not in OURS]
    found = {}
    for requirement in sum(extras, project()["dependencies"]):
        name, least = re.match(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", requirement).groups()
        found[name] = least
    return found


def constraints(age: str) -> list[str]:
    pins = oldest()
    tools = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and line[0] != "#"]
    free = pins.keys() - set(FIXED) | {"llvmlite"}  # which goes with Numba
    kept = [line for line in tools if line.partition("==")[0] not in free]
    return [*kept, *(f"{name}=={least}" for name, least in pins.items() if age == "oldest" and name in free)]


if __name__ == "__main__":
    print("\n".join(constraints(sys.argv[1])))
