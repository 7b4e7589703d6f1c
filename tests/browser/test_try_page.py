"""The page to try files: two real files, dropped, run in Chromium and compared; and what its server gives to whom."""

import http.client
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from graphs import classifier

from sparsetorch.cli import main
from sparsetorch.errors import BadInputError
from sparsetorch.tflite import encode, save
from sparsetorch.web.server import ADDRESS, Site, make_server


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A dense file, the same sparse, one that computes something else, and one that is none."""
    folder = tmp_path_factory.mktemp("files")
    names = ["m.tflite", "m.dense.tflite", "other.tflite", "none.tflite"]
    model = classifier(size=64)
    save(model, folder / "m.dense.tflite")
    encode(model)
    save(model, folder / "m.tflite")
    save(classifier(size=64, seed=1), folder / "other.tflite")
    (folder / "none.tflite").write_bytes(b"no model")
    return [folder / name for name in names]


@pytest.fixture(scope="module")
def server(files: list[Path]) -> Iterator[Any]:
    with make_server(Site.of([]), 0) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def run(page: Any, files: list[Path], runs: int = 6) -> list[list[str]]:
    """Choose files, run, and give the table's cells."""
    page.set_input_files("#files", [str(file) for file in files])
    page.wait_for_function(f"document.querySelectorAll('#chosen li').length === {len(files)}")
    page.fill("#runs", str(runs))
    page.click("#run")
    page.wait_for_selector("#result:not([hidden])", timeout=90_000)
    return page.locator("#rows tr").evaluate_all(
        "rows => rows.map((row) => [...row.cells].map((cell) => cell.textContent))"
    )


def test_dense_and_sparse_side_by_side(server: Any, files: list[Path], visit: Any) -> None:
    seen = visit(f"http://{ADDRESS}:{server.server_port}/", width=360)
    sparse, dense, other, none = files
    rows = run(seen.page, [sparse, dense, other, none])
    assert seen.errors == []
    assert all(
        url.startswith(f"http://{ADDRESS}:{server.server_port}/")
        for url in seen.requests
        if not url.startswith(("data:", "blob:"))
    )
    assert [row[0] for row in rows] == ["m.dense.tflite", "m.tflite", "other.tflite", "none.tflite"]
    assert rows[0][-1] == ""
    assert 0 < float(rows[1][-1]) < 1e-5  # the sparse file gives the dense one's numbers, summed in another order
    assert float(rows[2][-1]) > 1e-2  # another network does not
    assert rows[3][2].startswith("does not run: ")
    for row in rows[:3]:
        load, median = float(row[2]), float(row[3])
        low, high = map(float, row[4].split(" to "))
        assert load > 0
        assert 0 < low <= median <= high
    headline = seen.page.inner_text("#headline")
    assert "m.tflite: " in headline
    assert "times as" in headline or "no difference measured" in headline
    versions = seen.page.inner_text("#versions")
    assert "6 runs of each in turns after 5; 1 thread;" in versions
    assert "clock of 5 microseconds" in versions  # the headers isolate the page
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= 360


def test_threads_are_had_where_asked_for(server: Any, files: list[Path], visit: Any) -> None:
    seen = visit(f"http://{ADDRESS}:{server.server_port}/")
    seen.page.fill("#threads", "2")
    rows = run(seen.page, files[:2], runs=2)
    assert 0 <= float(rows[1][-1]) < 1e-5
    assert "2 threads" in seen.page.inner_text("#versions")
    assert any("litert_wasm_threaded" in url for url in seen.requests)


def test_statistics_are_those_of_the_command(server: Any, visit: Any) -> None:
    from sparsetorch.latency.statistics import Ratio, in_words, summary

    page = visit(f"http://{ADDRESS}:{server.server_port}/").page
    module = "const m = await import('/statistics.mjs'); return"
    times = [3.0, 1.0, 10.5, 2.0, 7.0]
    found = page.evaluate(
        f"async (t) => {{ {module} [m.median(t), m.percentile(t, 0.1), m.percentile(t, 0.9)] }}", times
    )
    expected = summary(times)
    assert found == pytest.approx([expected.median, expected.p10, expected.p90])
    assert page.evaluate(f"async () => {{ {module} m.ratio([4, 2], [1, 1]) }}") == {"value": 3, "low": 2, "high": 4}
    for value in (Ratio(2.4, 2.3, 2.5), Ratio(1.1, 0.9, 1.2), Ratio(0.5, 0.4, 0.8)):
        given = {"value": value.value, "low": value.low, "high": value.high}
        assert page.evaluate(f"async (r) => {{ {module} m.inWords(r) }}", given) == in_words(value)
    differences = [([[1, 2]], [[1, 2]]), ([[1, -4]], [[1, -3]]), ([[1]], [[1, 2]]), ([[0, 0]], [[0, 0]])]
    shown = [
        page.evaluate(f"async ([a, b]) => {{ {module} String(m.largestDifference(a, b)) }}", list(pair))
        for pair in differences
    ]
    assert shown == ["0", "0.25", "Infinity", "0"]


def ask(server: Any, path: str, host: str | None = None) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(ADDRESS, server.server_port, timeout=10)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


def test_the_server_gives_its_files_alone_and_to_this_machine_alone(server: Any) -> None:
    assert server.server_address[0] == "127.0.0.1"
    answer = ask(server, "/")
    assert answer.status == 200
    assert answer.getheader("Cross-Origin-Opener-Policy") == "same-origin"
    assert answer.getheader("Cross-Origin-Embedder-Policy") == "require-corp"
    assert ask(server, "/litert/core/wasm/litert_wasm_internal.wasm").getheader("Content-Type") == "application/wasm"
    for path in (
        "/server.py",
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/litert/core/../../../package.json",
        "/models/x.tflite",
        "//etc/passwd",
    ):
        assert ask(server, path).status == 404, path
    assert ask(server, "/", "evil.example:80").status == 403
    assert ask(server, "/", "evil.example").status == 403


def test_models_named_on_the_command_line_are_there_at_once(files: list[Path], visit: Any) -> None:
    with make_server(Site.of(files[:2]), 0) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        page = visit(f"http://{ADDRESS}:{made.server_port}/").page
        page.wait_for_selector("#run:not([disabled])")
        assert page.locator("#chosen li").all_inner_texts()[0].startswith("first: m.dense.tflite")
        made.shutdown()
        thread.join()


def test_what_cannot_be_served(
    files: list[Path], server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BadInputError, match="cannot be used"):
        make_server(Site.of([]), server.server_port)
    with pytest.raises(BadInputError, match="different names"):
        Site.of([files[0], files[0]])
    assert main(["serve", str(tmp_path / "missing.tflite")]) == 1
    monkeypatch.setenv("SPARSETORCH_RUNTIMES", str(tmp_path))
    assert main(["serve"]) == 5
    assert "sparsetorch runtime install wasm" in capsys.readouterr().err
