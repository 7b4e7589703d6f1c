"""Where a network comes from: a checkpoint of this package, or a factory named on the command line."""

import importlib
import importlib.util
import json
import pickle
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor, nn

from sparsetorch.errors import BadInputError
from sparsetorch.masking import plain_state_dict


def load_checkpoint(path: Path, config: Path | None = None) -> tuple[nn.Module, list[int] | None]:
    """The trained module of a checkpoint, masks multiplied out, and the shape (C, H, W) of one input if it is recorded.

    Args:
        path: a Lightning checkpoint.
        config: the recipe it was trained with; needed only for one that `sparsetorch fit` did not write.

    Raises:
        BadInputError: missing, no checkpoint, one without a recipe, or one whose weights do not fit the recipe's model.
    """
    checkpoint = read_checkpoint(path)
    state = checkpoint.get("state_dict")
    if not isinstance(state, Mapping):
        raise BadInputError(
            f"{path}: found no state_dict in it, needed a Lightning checkpoint. For a plain state dict, "
            "use --model FACTORY --weights FILE."
        )
    record = checkpoint.get("sparsetorch", {})
    recipe = record.get("config") if config is None else _read_recipe(config)
    if not recipe or "model" not in recipe:
        raise BadInputError(
            f"{path}: the checkpoint does not say which model it holds (sparsetorch did not write it); "
            "give the recipe with --config, or the network with --model FACTORY"
        )
    import pytorch_lightning as pl

    module: nn.Module = _instantiate(recipe["model"], pl.LightningModule, "model")
    load_weights(module, state, str(path))
    return module, record.get("input_shape")


def load_data(path: Path, config: Path | None = None, changed: Mapping[str, Any] | None = None) -> Any:
    """The LightningDataModule of a checkpoint's recipe, set up for fitting and testing.

    Args:
        path: a Lightning checkpoint.
        config: its recipe; None: the one recorded in the checkpoint.
        changed: arguments of the data to give in place of the recipe's.

    Raises:
        BadInputError: a checkpoint without a recipe, or a recipe without data.
    """
    recipe = read_checkpoint(path).get("sparsetorch", {}).get("config") if config is None else _read_recipe(config)
    if not recipe or "data" not in recipe:
        raise BadInputError(
            f"{path}: its recipe names no data; give one with a `data:` section by --config, or, where a command takes them, "
            "images by --images"
        )
    import pytorch_lightning as pl

    section = dict(recipe["data"])
    if changed:
        section["init_args"] = {**(section.get("init_args") or {}), **changed}
    data = _instantiate(section, pl.LightningDataModule, "data")
    data.prepare_data()
    data.setup("fit")
    data.setup("test")
    return data


def load_recipe(path: Path) -> tuple[nn.Module, Any | None, tuple[int, ...] | None]:
    """What a recipe is going to train: the module, its `SparseTraining` or None, and the shape of one input or None.

    The shape is that of `example_input_array`, or of the first sample where the data is on this machine already.

    Raises:
        BadInputError: no recipe, or a section that cannot be made.
    """
    recipe = _read_recipe(path)
    if "model" not in recipe:
        raise BadInputError(f"--config: {path}: needed a recipe with a `model:` section")
    import pytorch_lightning as pl

    from sparsetorch.callbacks.sparse_training import SparseTraining

    module = _instantiate(recipe["model"], pl.LightningModule, "model")
    sparsity = recipe.get("sparsity")
    training = None if sparsity is None else _instantiate(sparsity, SparseTraining, "sparsity")
    example = module.example_input_array
    if isinstance(example, Tensor):
        return module, training, tuple(example.shape[1:])
    return module, training, None if recipe.get("data") is None else _sample_shape(recipe["data"])


def _sample_shape(section: Any) -> tuple[int, ...] | None:
    """Of the first training sample's first tensor; None where it cannot be had without a download."""
    import pytorch_lightning as pl

    from sparsetorch.callbacks.input_shape import first_tensor

    data = _instantiate(section, pl.LightningDataModule, "data")
    try:
        data.setup("fit")
        sample = first_tensor(data.train_dataloader().dataset[0])
    except Exception:  # data of any kind, which may not be there yet: the user can say the shape
        return None
    return None if sample is None else tuple(sample.shape)


def load_factory(model: str, arguments: str | None = None, weights: Path | None = None) -> nn.Module:
    """The module that `dotted.path:callable` or `file.py:callable` makes.

    Args:
        model: the factory.
        arguments: its keyword arguments as a JSON object.
        weights: a state dict or checkpoint to load, with or without masks.

    Raises:
        BadInputError: no such module or callable, arguments it does not take, or something that is no nn.Module.
    """
    place, colon, name = model.rpartition(":")
    if not colon or not place or not name:
        raise BadInputError(
            f"--model: found {model!r}, needed dotted.path:callable or file.py:callable, "
            "such as torchvision.models:mobilenet_v2"
        )
    factory = getattr(_import(place), name, None)
    if not callable(factory):
        raise BadInputError(f"--model: {place} has no callable {name!r}")
    try:
        keywords = json.loads(arguments or "{}")
    except json.JSONDecodeError as error:
        raise BadInputError(
            f'--model-args: found {arguments!r}, needed a JSON object such as {{"num_classes": 10}} ({error.msg})'
        ) from error
    if not isinstance(keywords, dict):
        raise BadInputError(f'--model-args: found {arguments!r}, needed a JSON object such as {{"num_classes": 10}}')
    try:
        module = factory(**keywords)
    except Exception as error:
        raise BadInputError(f"--model: {model} failed: {type(error).__name__}: {error}") from error
    if not isinstance(module, nn.Module):
        raise BadInputError(f"--model: {model} returned a {type(module).__name__}, needed an nn.Module")
    if weights is not None:
        state = read_checkpoint(weights)
        load_weights(module, state.get("state_dict", state), str(weights))
    return module


def load_weights(module: nn.Module, state: Mapping[str, Tensor], source: str) -> None:
    """Load a state dict with or without masks into a plain module, every key accounted for.

    Raises:
        BadInputError: naming keys on either side that the other lacks, and shapes that differ.
    """
    plain = plain_state_dict(state)
    own = module.state_dict()
    missing = [key for key in own if key not in plain]
    unexpected = [key for key in plain if key not in own]
    shapes = [key for key in own if key in plain and own[key].shape != plain[key].shape]
    problems = []
    for what, keys in (("it lacks", missing), ("the model has no", unexpected), ("other shapes for", shapes)):
        if keys:
            problems.append(f"{what} {', '.join(keys[:3])}{f' and {len(keys) - 3} more' if len(keys) > 3 else ''}")
    if problems:
        raise BadInputError(f"{source}: does not fit {type(module).__name__}: {'; '.join(problems)}")
    module.load_state_dict(plain)


def read_checkpoint(path: Path) -> Mapping[str, Any]:
    """What a file saved by torch holds, loaded as plain tensors.

    Raises:
        BadInputError: missing, or no such file.
    """
    if not path.is_file():
        raise BadInputError(f"{path}: no such file; needed a checkpoint")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        detail = str(error).strip().splitlines()[0]
        raise BadInputError(
            f"{path}: cannot be loaded as plain tensors, which is all that is loaded here, since anything else could run "
            f"code. It is no checkpoint, or one that holds pickled objects ({detail})"
        ) from error
    except Exception as error:  # a text file, an empty one, a truncated one: torch raises a dozen kinds
        raise BadInputError(f"{path}: is no PyTorch checkpoint ({type(error).__name__})") from error
    if not isinstance(content, Mapping):
        raise BadInputError(f"{path}: holds a {type(content).__name__}, needed a checkpoint or a state dict")
    return content


def _read_recipe(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise BadInputError(f"--config: {path}: no such file")
    try:
        recipe = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInputError(f"--config: {path} is no YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(recipe, dict):
        raise BadInputError(f"--config: {path}: needed a recipe with a `model:` section")
    return recipe


def _instantiate(section: Any, base: type, name: str) -> Any:
    """The object of a recipe's `model:` or `data:` section."""
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(base, name, required=True)
    try:
        return getattr(parser.instantiate(parser.parse_object({name: section})), name)
    except BadInputError:
        raise
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise BadInputError(f"the recipe's {name} cannot be made: {' '.join(lines)[:500]}") from error


def _import(place: str) -> Any:
    try:
        if not place.endswith(".py"):
            return importlib.import_module(place)
        path = Path(place)
        if not path.is_file():
            raise BadInputError(f"--model: found no file {place}")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise BadInputError(f"--model: {place} is no Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(path.stem, module)
        spec.loader.exec_module(module)
        return module
    except BadInputError:
        raise
    except Exception as error:
        raise BadInputError(f"--model: {place} cannot be imported: {type(error).__name__}: {error}") from error
