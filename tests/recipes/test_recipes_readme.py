"""recipes/README.md lists every recipe, and every class of the `sparsity` section with all its fields and their defaults."""

import dataclasses
import re
from pathlib import Path

import pytest
import yaml

import sparsetorch
from sparsetorch.sparsify.algorithm import Algorithm
from sparsetorch.sparsify.distribution import Distribution
from sparsetorch.sparsify.pattern import Pattern
from sparsetorch.sparsify.policy import Policy
from sparsetorch.sparsify.schedule import Schedule

RECIPES = Path(__file__).parents[2] / "recipes"
PAGE = (RECIPES / "README.md").read_text()
PARTS = (Algorithm, Schedule, Policy, Distribution, Pattern)
CLASSES = sorted(
    name
    for name in sparsetorch.__all__
    if isinstance(getattr(sparsetorch, name), type) and issubclass(getattr(sparsetorch, name), PARTS)
)


def test_every_recipe_is_listed() -> None:
    names = {str(path.relative_to(RECIPES)) for path in RECIPES.rglob("*.yaml")}
    assert names == set(re.findall(r"^\| `(\w+/\w+\.yaml)` \|", PAGE, re.MULTILINE))


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\((?!#)([^)]+)\)", PAGE):
        assert (RECIPES / target).exists(), target


def test_there_are_classes_to_look_for() -> None:
    assert {"RigL", "ThreeStep", "ByName", "Global", "NM"} <= set(CLASSES)


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_is_in_the_table_with_its_fields(name: str) -> None:
    rows = [line for line in PAGE.splitlines() if re.match(r"\|[^|]*\|[^|]*`" + name + r"`[^|]*\|", line)]
    assert len(rows) == 1, name
    inherited = {"RigL": "drop_fraction", "SNFS": "as RigL", "ThreeStep": "as PolynomialDecay"}
    for field in dataclasses.fields(getattr(sparsetorch, name)):
        if inherited.get(name, "").startswith("as ") and field.name not in ("momentum", "begin_step", "end_step"):
            continue
        shown = "*steps*" if field.name in ("begin_step", "end_step", "update_every") else f"`{field.name}`"
        assert shown in rows[0] or f"`{field.name}`" in rows[0], f"{name}.{field.name}"


def test_the_yaml_example_is_a_sparsity_section() -> None:
    example, rounds = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    section = yaml.safe_load(example)["sparsity"]
    assert list(section) == ["algorithm", "schedule", "policy", "distribution", "pattern", "seed"]
    for key in list(section)[:5]:
        made = getattr(sparsetorch, section[key]["class_path"].removeprefix("sparsetorch."))
        made(**section[key].get("init_args", {}))
    options = yaml.safe_load(rounds)["sparsity"]["init_args"]
    sparsetorch.IterativePruning(**options | {"algorithm": sparsetorch.Magnitude()})
