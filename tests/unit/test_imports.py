"""Every module imports with the core dependencies alone, as `pip install sparsetorch` gives them."""

import subprocess
import sys

_SCRIPT = """
import importlib, importlib.metadata as metadata, pkgutil, sys
from importlib.machinery import PathFinder
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

def closure(name, extras=frozenset()):
    # What pip would install for this requirement.
    key = (canonicalize_name(name), frozenset(extras))
    if key in seen:
        return
    seen.add(key)
    for text in metadata.requires(name) or []:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in (*extras, "")):
            try:
                metadata.version(requirement.name)
            except metadata.PackageNotFoundError:
                continue  # for another platform
            closure(requirement.name, requirement.extras)

seen = set()
closure("sparsetorch")
core = {name for name, _ in seen}
owners = metadata.packages_distributions()

class OnlyCore:
    # In the place of the finder of installed packages: what is no core dependency is not there.
    @staticmethod
    def find_spec(name, path=None, target=None):
        top = name.partition(".")[0]
        if top in owners and not any(canonicalize_name(owner) in core for owner in owners[top]):
            return None
        return PathFinder.find_spec(name, path, target)

real = metadata.distribution

def distribution(name):
    # Packages ask the metadata what they may import.
    if canonicalize_name(name) not in core:
        raise metadata.PackageNotFoundError(name)
    return real(name)

metadata.distribution = distribution
sys.meta_path[sys.meta_path.index(PathFinder)] = OnlyCore
for absent in ("tensorflow", "onnx2tf", "onnx", "pytest"):
    try:
        importlib.import_module(absent)
        sys.exit(f"{absent} could be imported: the test would prove nothing")
    except ModuleNotFoundError:
        pass
import sparsetorch
names = [m.name for m in pkgutil.walk_packages(sparsetorch.__path__, "sparsetorch.") if not m.name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
for name in sparsetorch.__all__:
    getattr(sparsetorch, name)
print(len(names))
"""


def test_every_module_imports_with_the_core_dependencies_alone() -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) >= 40
