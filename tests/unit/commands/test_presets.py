"""Export presets: every file in export/ is one, says what it is for, and is told apart from mistakes."""

from pathlib import Path

import pytest

from sparsetorch.errors import BadInputError
from sparsetorch.exporter.preset import Preset, load_preset

ROOT = Path(__file__).parents[3]
PRESETS = sorted((ROOT / "export").glob("*.yaml"))


def test_no_preset_is_missed() -> None:
    assert len(PRESETS) == 7


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_a_preset_loads_and_says_how_to_use_it(path: Path) -> None:
    assert isinstance(load_preset(path), Preset)
    text = path.read_text()
    assert f"--preset export/{path.name}" in text
    assert path.stem in (ROOT / "export" / "README.md").read_text()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("value: int8", "unknown key 'value'; did you mean values"),
        ("values: int4", "values: found 'int4', needed one of float32, float16, int8"),
        ("quantize: int8", "quantize: found 'int8'"),
        ("targets: arm64", "targets: found 'arm64', needed a list of"),
        ("targets: [toaster]", "targets"),
        ("- values", "needed keys such as"),
        ("values: [", "is no YAML"),
    ],
)
def test_a_mistake_is_told(content: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(content)
    with pytest.raises(BadInputError, match=told):
        load_preset(tmp_path / "p.yaml")
    with pytest.raises(BadInputError, match="cannot be read"):
        load_preset(tmp_path / "nowhere.yaml")
