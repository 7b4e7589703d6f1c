"""The report as a picture: no errors, no network, no blank figure, readable in both themes and on a phone."""

import base64
import csv
import io
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import OP, Net, classifier
from PIL import Image

from sparsetorch.cli import main
from sparsetorch.report.page.colours import DARK, LIGHT
from sparsetorch.tflite import Model, encode, save

HOSTILE = "</title></svg><script>window.hacked = 1; alert(1)</script>\x00\x1b[31m\ud800 & \"'"
FORMULA = '=HYPERLINK("http://example.com")'


def as_large_as_mobilenet() -> Model:
    """Stem, 17 blocks, head, pool and classifier: 65 operators and some pads, in few channels."""
    net = Net()
    x = net.stem(net.input(64, 3), 8)
    for number in range(17):
        x = net.block(x, 8 if number < 8 else 16, 2 if number in (2, 8) else 1)
    net.output(net.dense(net.mean(net.pointwise(x, 32, name="head.weight", activation=3)), 10))
    return net.model()


def broken() -> Model:
    """A max-pool and a hard gate in the way, and names that nobody should trust."""
    made = classifier(gate="hard", size=64, middle=lambda net, x: net.pool(OP.MAX_POOL_2D, x, 2))
    named = {operator.code: operator for operator in made.graphs[0].operators}
    named[OP.ADD].outputs[0].name = HOSTILE.replace("\ud800", "")
    named[OP.MAX_POOL_2D].outputs[0].name = FORMULA
    return made


def run_folder(folder: Path) -> Path:
    """What `sparsetorch fit` leaves, with 3 layers and 6 updates."""
    folder.mkdir()
    layers = ["features.1", "features.2", HOSTILE.replace("\x00", "")[:40].encode(errors="ignore").decode(), "total"]
    lines = [
        f"{step},{number},{min(0.9, step / 500 + number / 20):.3f}"
        for step in range(0, 600, 100)
        for number in range(4)
    ]
    with (folder / "sparsity.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["step", "layer", "sparsity"])
        for line in lines:
            step, number, value = line.split(",")
            writer.writerow([step, layers[int(number)], value])
    (folder / "metrics.csv").write_text(
        "epoch,step,train_loss,val_acc,val_loss\n"
        + "".join(f"{n},{10 * n},{2 / (n + 1)},{n / 12},{3 / (n + 1)}\n" for n in range(10))
    )
    (folder / "summary.json").write_text(
        json.dumps({"metrics": {"val_acc": 0.75, "val_loss": float("nan")}, "sparsity": {"total": 0.9}})
    )
    (folder / "config.yaml").write_text(f"trainer:\n  name: '{HOSTILE.encode(errors='ignore').decode()}'\n")
    (folder / "run.test.json").write_text('{"metrics": {"test_acc": 0.7431}}')
    return folder


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Three reports: a large eligible file, a broken one, and a run with an exported file."""
    folder = tmp_path_factory.mktemp("reports")
    eligible, bad = as_large_as_mobilenet(), broken()
    encode(eligible)
    encode(bad)
    save(eligible, folder / "large.tflite")
    save(bad, folder / "bad.tflite")
    run = run_folder(folder / "run")
    save(eligible, run / "model.tflite")
    sources = {"large": folder / "large.tflite", "bad": folder / "bad.tflite", "run": run}
    for name, source in sources.items():
        assert main(["report", str(source), "-o", str(folder / f"{name}.html"), "--quiet"]) == 0
    return {name: folder / f"{name}.html" for name in sources}


def pictures(page: Any, selector: str) -> list[Any]:
    """The elements' parts of one picture of the whole page."""
    whole = np.asarray(Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")).astype(int)
    boxes = page.locator(selector).evaluate_all(
        "all => all.map((one) => one.getBoundingClientRect()).map((box) => [box.x, box.y, box.right, box.bottom])"
    )
    return [whole[round(top) : round(bottom), round(left) : round(right)] for left, top, right, bottom in boxes]


def pixels_of(image: Any, colour: str) -> int:
    wanted = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)])
    return int((np.abs(image - wanted).max(axis=-1) <= 6).sum())


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_the_page_is_whole_in_every_theme_and_width(
    pages: dict[str, Path], visit: Any, scheme: str, width: int
) -> None:
    for name, path in pages.items():
        seen = visit(path.as_uri(), width, scheme)
        page = seen.page
        assert (seen.errors, seen.console) == ([], []), name
        assert [url for url in seen.requests if not url.startswith("data:")] == [path.as_uri()]
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        drawn = pictures(page, "figure svg[role=img]")
        assert len(drawn) >= 3
        for number, image in enumerate(drawn):
            assert image.std() > 8, f"{name}: figure {number} is blank"
            assert len(np.unique(image @ (65536, 256, 1))) > 20
        colours = DARK if scheme == "dark" else LIGHT
        parts = page.locator("#network svg[role=img]").count()  # the network comes first
        network = np.concatenate([image.reshape(-1, 3) for image in drawn[:parts]])
        if name == "bad":
            assert pixels_of(network, colours["breaker"]) > 100
            assert pixels_of(network, colours["breaker-band"]) > 5000
            assert pixels_of(network, colours["band"]) == 0
        else:
            assert pixels_of(network, colours["band"]) > 20 * pixels_of(network, colours["sparse"]) / 10 > 1000
            assert pixels_of(network, colours["border"]) > 60  # entry and exit
            assert pixels_of(network, colours["breaker"]) == 0


_CONTRAST = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = (rgb) => { const [r, g, b] = rgb.map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const found = [];
  for (const element of document.querySelectorAll('h1, h2, h3, p, span, b, td, th, li, a, dt, dd, button, summary, footer')) {
    if (!element.textContent.trim() || !element.offsetParent) continue;
    let behind = element;
    while (behind && (parse(getComputedStyle(behind).backgroundColor)[3] ?? 1) === 0) behind = behind.parentElement;
    const pair = [getComputedStyle(element).color, getComputedStyle(behind ?? document.body).backgroundColor];
    const [a, b] = pair.map((colour) => light(parse(colour).slice(0, 3))).sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), element.textContent.trim().slice(0, 40)]);
  }
  return found.sort((x, y) => x[0] - y[0]);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(pages: dict[str, Path], visit: Any, scheme: str) -> None:
    for path in pages.values():
        found = visit(path.as_uri(), 800, scheme).page.evaluate(_CONTRAST)
        assert len(found) > 30
        assert found[0][0] >= 4.5, found[:3]


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_text_in_figures_can_be_read(colours: dict[str, str]) -> None:
    def luminance(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    def contrast(one: str, other: str) -> float:
        high, low = sorted((luminance(colours[one]), luminance(colours[other])), reverse=True)
        return (high + 0.05) / (low + 0.05)

    for text, behind in (
        *((text, "paper") for text in ("ink", "muted", "sparse", "border", "breaker", "unsafe")),
        *((text, band) for text in ("ink", "muted") for band in ("band", "breaker-band", "unsafe-band")),
        ("breaker", "breaker-band"),
        ("unsafe", "unsafe-band"),
    ):
        assert contrast(text, behind) >= 4.5, (text, behind, contrast(text, behind))
    assert contrast("sparse", "dense") > 1.3


def test_text_is_as_large_on_a_phone_as_it_says(pages: dict[str, Path], visit: Any) -> None:
    page = visit(pages["large"].as_uri(), 360).page
    heights = page.evaluate(
        "[...document.querySelectorAll('#sizes text')].map((text) => text.getBoundingClientRect().height)"
    )
    assert min(heights) >= 9


def test_the_button_changes_the_theme(pages: dict[str, Path], visit: Any) -> None:
    page = visit(pages["large"].as_uri(), scheme="dark").page
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.click("#theme")
    light = page.evaluate(background)
    assert light == "rgb(245, 246, 248)" != dark
    page.click("#theme")
    assert page.evaluate(background) == dark


def test_names_in_files_stay_names(pages: dict[str, Path], visit: Any) -> None:
    for name in ("bad", "run"):
        seen = visit(pages[name].as_uri())
        assert seen.errors == []
        assert seen.page.evaluate("window.hacked") is None
        assert seen.page.locator("script").count() == 1
    assert "window.hacked = 1" in seen.page.locator("pre").text_content()


def _downloads(page: Any) -> dict[str, str]:
    found = page.locator(".downloads a").evaluate_all("links => links.map((link) => [link.download, link.href])")
    return {name: base64.b64decode(href.partition(",")[2]).decode() for name, href in found}


def test_every_figure_downloads_as_a_drawing_and_as_numbers(pages: dict[str, Path], visit: Any) -> None:
    for name, expected in (
        (
            "run",
            {"network", "sparsity_per_layer", "sparsity_over_time", "sizes", "accuracy_over_time", "loss_over_time"},
        ),
        ("bad", {"network", "sparsity_per_layer", "sizes"}),
    ):
        files = _downloads(visit(pages[name].as_uri()).page)
        assert set(files) == {f"{figure}.{kind}" for figure in expected for kind in ("svg", "csv")}
        for file, content in files.items():
            if file.endswith(".svg"):
                drawing = ElementTree.fromstring(content)
                assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
                assert len(list(drawing.iter())) > 10
                assert "var(" not in content
            else:
                lines = list(csv.reader(io.StringIO(content)))
                assert len(lines) > 2
                assert len({len(line) for line in lines}) == 1
    network = list(csv.DictReader(io.StringIO(files["network.csv"])))
    assert any(row["name"].startswith("'=HYPERLINK") for row in network)
    assert not any(value.startswith("=") for row in network for value in row.values())
    assert sum(row["role"] == "breaker" for row in network) >= 2


def test_a_click_downloads_the_file(pages: dict[str, Path], visit: Any, tmp_path: Path) -> None:
    page = visit(pages["large"].as_uri()).page
    expected = _downloads(page)
    for name in ("network.svg", "sizes.csv"):
        with page.expect_download() as found:
            page.click(f"a[download='{name}']")
        assert found.value.suggested_filename == name
        found.value.save_as(tmp_path / name)
        assert (tmp_path / name).read_text() == expected[name]


def test_the_page_works_without_scripts(pages: dict[str, Path], browser: Any) -> None:
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto(pages["large"].as_uri())
    assert page.locator("#verdict h2").inner_text() == "Eligible for the sparse path on arm64 and wasm"
    assert page.locator("#theme").is_hidden()
