"""`sparsetorch fit | validate | test | predict`: Lightning's own command line, with a `sparsity:` section and a run folder.

A run leaves one folder: config.yaml, checkpoints/last.ckpt, metrics.csv, TensorBoard events, summary.json; a sparse one also
sparsity.csv and the plots sparsity_over_time and sparsity_per_layer, each as .png and .svg.
"""

import logging
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import yaml
from pytorch_lightning.callbacks import ModelCheckpoint, RichProgressBar, TQDMProgressBar
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger
from rich.console import Console
from rich.table import Table

from sparsetorch.callbacks.run_record import RunRecord
from sparsetorch.callbacks.sparse_training import SparseTraining
from sparsetorch.callbacks.sparsity_monitor import SparsityMonitor
from sparsetorch.callbacks.training_check import TrainingCheck
from sparsetorch.commands.parse_errors import explain
from sparsetorch.errors import BadInputError, SparsetorchError, UsageError
from sparsetorch.files import first_free, write_json
from sparsetorch.report.sparsity_table import print_accounting


class TrainingCLI(LightningCLI):
    """LightningCLI with a `sparsity:` section and a run folder."""

    record: RunRecord | None = None

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add what sparsetorch adds to Lightning's arguments."""
        parser.add_subclass_arguments(
            SparseTraining,
            "sparsity",
            required=False,
            help="trains sparse: algorithm, schedule, policy, distribution, pattern; left out, training is dense",
        )
        parser.add_argument(
            "--run_dir",
            type=str | None,
            default=None,
            help="folder of the run; by default runs/<folder of the recipe>/<its name>; with -2, -3, ... if taken",
        )
        parser.add_argument(
            "--check",
            type=bool,
            default=True,
            help="when a sparse training starts, say in a line whether it would miss XNNPACK's sparse path; takes seconds",
        )
        parser.add_argument("--json", type=str | None, default=None, help="write the summary to FILE, or - for stdout")
        parser.add_argument("--quiet", type=bool, default=False, help="no progress, no table")

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """Give the trainer its run folder, loggers, checkpoint and record, unless the recipe brings its own."""
        options = self._get(self.config_init, "trainer", default={})
        own = options.get("callbacks") or []
        own = own if isinstance(own, list) else [own]
        quiet = self._get(self.config_init, "quiet")
        bar = options.get("enable_progress_bar") is not False and not quiet and sys.stderr.isatty()
        kwargs["enable_progress_bar"] = bar
        kwargs["enable_model_summary"] = bool(options.get("enable_model_summary"))
        callbacks: list[pl.Callback] = []
        if bar and not any(isinstance(callback, TQDMProgressBar | RichProgressBar) for callback in own):
            callbacks.append(RichProgressBar())
        if self.subcommand == "fit":
            run_dir = self._run_dir()
            kwargs["default_root_dir"] = str(run_dir)
            if options.get("logger") in (None, True):
                place: dict[str, Any] = {"save_dir": str(run_dir), "name": "", "version": ""}
                kwargs["logger"] = [TensorBoardLogger(**place), CSVLogger(**place)]
            if not any(isinstance(callback, ModelCheckpoint) for callback in own):
                # The last state, not the best: the best epoch of a sparse training may be one before it was sparse.
                last = ModelCheckpoint(run_dir / "checkpoints", filename="last", enable_version_counter=False)
                callbacks.append(last)
            # Before SparseTraining, so that a run that misses its target has its summary all the same.
            self.record = RunRecord(run_dir, self._plain_config(), lines=not bar and not quiet)
            callbacks.append(self.record)
        else:
            kwargs["logger"] = False
        sparsity = self._get(self.config_init, "sparsity")
        if sparsity is not None:
            callbacks.append(sparsity)
            # With every command: Lightning warns of a checkpoint whose callbacks are missing.
            if not any(isinstance(callback, SparsityMonitor) for callback in own):
                callbacks.append(SparsityMonitor())
        if self.subcommand == "fit" and sparsity is not None and self._get(self.config_init, "check") and not quiet:
            callbacks.append(TrainingCheck())
        kwargs["callbacks"] = [*callbacks, *own]  # SparseTraining has to come before weight averaging
        return super().instantiate_trainer(**kwargs)

    def _run_dir(self) -> Path:
        """Where this run goes; an earlier run is never written over."""
        given = self._get(self.config_init, "run_dir")
        if given is not None:
            base = Path(given)
        else:
            configs = self.config[str(self.subcommand)].get("config") or []
            recipe = Path(str(configs[-1])).resolve() if configs else Path("unnamed/run.yaml")
            base = Path("runs") / recipe.parent.name / recipe.stem
        return first_free(base)

    def _plain_config(self) -> dict[str, Any]:
        """The parsed recipe as plain dictionaries, so that a checkpoint loads with `weights_only=True`."""
        text = self._parser(self.subcommand).dump(self.config[str(self.subcommand)], skip_none=False)
        config: dict[str, Any] = yaml.safe_load(text)
        return config


def run(name: str, words: list[str]) -> int:
    """Run one of Lightning's commands, `fit`, `validate`, `test` or `predict`.

    Raises:
        UsageError: a mistyped key or argument.
        BadInputError: a recipe or checkpoint that is missing or holds something else.
    """
    words = ["--quiet=true" if word == "--quiet" else word for word in words]
    _check_files(words)
    asks_help = any(word in ("-h", "--help") or word.startswith("--print_config") for word in words)
    if not asks_help and not any(word.startswith(("--config", "-c", "--model")) for word in words):
        raise UsageError(
            f"found no recipe; needed for instance: sparsetorch {name} --config recipes/digits/rigl_90.yaml"
        )
    if name != "fit" and "--quiet=true" in words:
        words = [*words, "--verbose=false"]
    _calm()
    cli = _run_cli(name, words)
    _report(cli, name)
    return 0


def _check_files(words: list[str]) -> None:
    for option, value in zip(words, [*words[1:], ""], strict=False):
        option, separator, attached = option.partition("=")
        value = attached if separator else value
        if option in ("--config", "-c") and not Path(value).is_file():
            raise BadInputError(
                f"--config: found no file {value!r}; needed a recipe such as recipes/digits/rigl_90.yaml"
            )
        keywords = ("last", "best", "hpc", "registry", "null")
        if option == "--ckpt_path" and value not in keywords and not Path(value).is_file():
            raise BadInputError(f"--ckpt_path: found no file {value!r}; needed a checkpoint that an earlier run wrote")


def _calm() -> None:
    """Keep Lightning's advertisements and advice off the screen; warnings about the training itself stay."""
    # TensorBoard's writer imports TensorFlow where there is one: seconds and hundreds of megabytes, for nothing. A module
    # of this name is tensorboard's own switch for doing without (tensorboard/compat/__init__.py).
    sys.modules.setdefault("tensorboard.compat.notf", types.ModuleType("tensorboard.compat.notf"))
    for noise in (
        ".*does not have many workers.*",
        ".*smaller than the logging interval.*",
        ".*Experiment logs directory.*",
        ".*args parameter is intended to run from within Python.*",
        ".*isinstance.treespec, LeafSpec.*",
        ".*Checkpoint directory .* exists and is not empty.*",
        ".*The dirpath has changed.*",
        ".*The .*dataloader.* does not have many workers.*",
    ):
        warnings.filterwarnings("ignore", message=noise)
    for logger in ("pytorch_lightning.utilities.rank_zero", "lightning_fabric.utilities.rank_zero"):
        logging.getLogger(logger).setLevel(logging.WARNING)
    logging.getLogger("lightning_fabric.utilities.seed").setLevel(logging.WARNING)


def _run_cli(name: str, words: list[str]) -> TrainingCLI:
    parsers: list[LightningArgumentParser] = []

    class Parser(LightningArgumentParser):
        """Remembers its options, so that a mistyped one can be answered with the nearest."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            parsers.append(self)

    try:
        return TrainingCLI(
            pl.LightningModule,
            pl.LightningDataModule,
            subclass_mode_model=True,
            subclass_mode_data=True,
            save_config_callback=SaveConfigCallback if name == "fit" else None,
            save_config_kwargs={"overwrite": True},
            seed_everything_default=1,
            auto_configure_optimizers=False,
            parser_class=Parser,
            parser_kwargs={"exit_on_error": False, name: {"exit_on_error": False}},
            args=[name, *words],
        )
    except SparsetorchError:
        raise
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:  # our own errors come back wrapped in those of jsonargparse
            if isinstance(cause, SparsetorchError):
                raise cause from error
            cause = cause.__cause__ or cause.__context__
        if type(error).__module__.partition(".")[0] in ("jsonargparse", "argparse"):
            known = [action.dest for parser in parsers for action in parser._actions]
            raise UsageError(explain(str(error), known)) from error
        raise


def _report(cli: TrainingCLI, name: str) -> None:
    metrics = {key: float(value) for key, value in sorted(cli.trainer.callback_metrics.items())}
    result: dict[str, Any] = cli.record.summary if cli.record is not None else {"metrics": metrics}
    destination = cli._get(cli.config_init, "json")
    if cli.trainer.is_global_zero and not cli._get(cli.config_init, "quiet") and destination != "-":
        _print_summary(name, result)
        if cli.record is not None and cli.record.account is not None:
            print_accounting(cli.record.account)
    if cli.trainer.is_global_zero and destination is not None:
        write_json(destination, result)


def _print_summary(name: str, result: dict[str, Any]) -> None:
    table = Table("", "", title=f"sparsetorch {name}", show_header=False, title_justify="left")
    for key, value in result["metrics"].items():
        table.add_row(key, f"{value:.4f}")
    if name == "fit":
        parameters, sparsity = result["parameters"], result["sparsity"]
        table.add_row("sparsity", f"{sparsity['total']:.2%} of {len(sparsity['layers'])} layers' weights")
        table.add_row("parameters", f"{parameters['total']:,}, of which {parameters['non_zero']:,} are not zero")
        table.add_row("training", f"{result['epochs']} epochs, {result['steps']} steps, {result['seconds']:.0f} s")
        table.add_row("checkpoint", str(result["checkpoint"]))
        table.add_row("run folder", result["run_dir"])
    Console().print(table)
