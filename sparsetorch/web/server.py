"""Serve the page on the loopback interface, with the headers that isolate it. It reads a fixed set of files, and no others."""

import json
import urllib.parse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from sparsetorch.errors import BadInputError
from sparsetorch.runtime import wasm

ADDRESS = "127.0.0.1"
_HERE = Path(__file__).parent
_PAGE = ("index.html", "try.css", "try.mjs", "statistics.mjs")
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".wasm": "application/wasm",
    ".json": "application/json",
}
_ISOLATED = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class Site:
    """What may be read: address -> file."""

    files: dict[str, Path]
    models: tuple[str, ...] = ()
    """Names of the models that the page begins with."""

    @classmethod
    def of(cls, models: Sequence[Path]) -> "Site":
        """The page with some models.

        Raises:
            BadInputError: two models with one name, or one that is no file.
            CannotObserveError: LiteRT.js is not installed.
        """
        for model in models:
            if not model.is_file():
                raise BadInputError(f"{model} is no file; give .tflite files, or none and drop them on the page")
        names = [model.name for model in models]
        if len(set(names)) < len(names):
            raise BadInputError(f"found {', '.join(names)}, needed files with different names")
        packages = wasm.packages() / "node_modules" / "@litertjs"
        files = {f"/{name}": _HERE / name for name in _PAGE} | {"/": _HERE / "index.html"}
        files["/litert_job.mjs"] = wasm.SCRIPTS / "litert_job.mjs"
        files |= {f"/models/{model.name}": model for model in models}
        for name in ("core", "wasm-utils"):
            for part in ("dist", "wasm"):
                for file in sorted((packages / name / part).glob("*")):
                    files[f"/litert/{name}/{part}/{file.name}"] = file
        return cls(files, tuple(names))

    def read(self, address: str) -> tuple[bytes, str] | None:
        """Content and its type, or None where there is nothing."""
        if address == "/models.json":
            return json.dumps(list(self.models)).encode(), _KINDS[".json"]
        file = self.files.get(address)
        return None if file is None else (file.read_bytes(), _KINDS.get(file.suffix, "application/octet-stream"))


def make_server(site: Site, port: int = 0, said: Callable[[str], None] = lambda line: None) -> ThreadingHTTPServer:
    """A server on the loopback interface; `serve_forever` runs it.

    Args:
        site: what it serves.
        port: 0 takes a free one; see `server_port`.
        said: called with a line for each request.

    Raises:
        BadInputError: the port is taken.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version = "sparsetorch"

        def do_GET(self) -> None:
            """Answer one request."""
            # A name that leads here from elsewhere (DNS rebinding) is not this site.
            host = (self.headers.get("Host") or "").rpartition(":")[0]
            if host not in (ADDRESS, "localhost"):
                self._answer(HTTPStatus.FORBIDDEN, b"this server is for this machine alone\n", "text/plain")
                return
            found = site.read(urllib.parse.unquote(self.path.partition("?")[0]))
            if found is None:
                self._answer(HTTPStatus.NOT_FOUND, b"not here\n", "text/plain")
            else:
                self._answer(HTTPStatus.OK, *found)

        def _answer(self, status: HTTPStatus, content: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            for name, value in _ISOLATED.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            said(format % args)

    try:
        return ThreadingHTTPServer((ADDRESS, port), Handler)
    except (OSError, OverflowError) as error:
        raise BadInputError(f"port {port} cannot be used ({error}); name another by --port") from error
