"""Chromium, for LiteRT.js in a page: the one of the machine, or the one that Playwright downloads.

`SPARSETORCH_CHROMIUM` names an executable and goes before both. Playwright's driver, playwright-core, comes with the
WebAssembly packages (`wasm`), and decides on the version that it downloads.
"""

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from sparsetorch.errors import BadInputError, CannotObserveError
from sparsetorch.process import ProcessError, output
from sparsetorch.runtime import wasm
from sparsetorch.runtime.cache import install, installed
from sparsetorch.runtime.node import find_node
from sparsetorch.runtime.worker import ModelJob, Timing, WorkerResult, run_worker

VARIABLE = "SPARSETORCH_CHROMIUM"
_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_BROWSER = "chromium-headless-shell"
_EXECUTABLES = ("chrome-headless-shell", "headless_shell")
_INSTALL_LIMIT = 900.0


def run_litert(
    jobs: Sequence[ModelJob],
    folder: Path,
    timing: Timing | None = None,
    progress: Callable[[int], None] = lambda rounds: None,
) -> WorkerResult:
    """Outputs, and with `timing` the latencies, of all models in LiteRT.js in a page of headless Chromium.

    Raises:
        CannotObserveError: no browser, no WebAssembly packages, or no Node.js; or it does not start.
    """
    words = [find_node().path, wasm.SCRIPTS / "litert_chromium.mjs", wasm.packages(), find_chromium()]
    return run_worker(words, jobs, folder, timing, progress=progress)


def find_chromium() -> Path:
    """The browser's executable.

    Raises:
        CannotObserveError: there is none.
    """
    named = os.environ.get(VARIABLE)
    if named:
        if not os.access(named, os.X_OK) or not Path(named).is_file():
            raise CannotObserveError(f"{VARIABLE} is {named}, which is no program that can be run.")
        return Path(named)
    for name in _NAMES:
        found = shutil.which(name)
        if found is not None:
            return Path(found)
    downloaded = _downloaded()
    if downloaded is None:
        raise CannotObserveError(
            "there is no Chromium; `sparsetorch runtime install chromium` downloads one (once, 110 MB), or install your "
            f"distribution's, or name one by {VARIABLE}."
        )
    return downloaded


def version() -> str:
    """What the browser says that it is, such as `Chromium 156.0.8078.4`.

    Raises:
        CannotObserveError: there is none, or it does not start.
    """
    browser = find_chromium()
    try:
        said = output([str(browser), "--version"], limit=60)
    except (ProcessError, OSError) as error:
        raise CannotObserveError(f"{browser} does not start ({error}).") from error
    return " ".join(said.split()[:2]) or "Chromium of unknown version"


def install_browser() -> tuple[Path, bool]:
    """Make sure that there is a browser and its driver; the executable, and whether it was downloaded now.

    Raises:
        CannotObserveError: no Node.js.
        BadInputError: the download failed, with what was said.
    """
    packages, _ = wasm.install_packages()
    try:
        return find_chromium(), False
    except CannotObserveError:
        if os.environ.get(VARIABLE):
            raise
    node = find_node()

    def fill(folder: Path) -> None:
        words = [str(node.path), str(packages / "node_modules" / "playwright-core" / "cli.js"), "install", _BROWSER]
        try:
            output(words, limit=_INSTALL_LIMIT, environment={"PLAYWRIGHT_BROWSERS_PATH": str(folder)})
        except ProcessError as error:
            raise BadInputError(
                f"Playwright could not download Chromium: {error.complaint('Error')}. It needs the network once; or install "
                f"your distribution's Chromium."
            ) from error
        if _executable(folder) is None:
            raise BadInputError(
                "Playwright's download holds no Chromium for this platform; install your distribution's."
            )

    install(_folder_name(packages), fill)
    return find_chromium(), True


def _folder_name(packages: Path) -> str:
    listed = json.loads((packages / "node_modules" / "playwright-core" / "browsers.json").read_text())["browsers"]
    return f"chromium-{next(entry['browserVersion'] for entry in listed if entry['name'] == _BROWSER)}"


def _downloaded() -> Path | None:
    packages = installed(wasm.folder_name())
    folder = None if packages is None else installed(_folder_name(packages))
    return None if folder is None else _executable(folder)


def _executable(folder: Path) -> Path | None:
    found = (
        path for name in _EXECUTABLES for path in folder.rglob(name) if os.access(path, os.X_OK) and path.is_file()
    )
    return next(found, None)
