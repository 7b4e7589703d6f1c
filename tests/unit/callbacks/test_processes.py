"""Two ranks train the one network that a single process trains; a run that is killed ends as if it had not been."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from training import Plain, data, trainer

from sparsetorch import RigL, SparseTraining
from sparsetorch.callbacks.ranks import check_ranks_agree
from sparsetorch.errors import WrongNumbersError

SCRIPT = Path(__file__).with_name("processes.py")


def run(*words: object, timeout: int = 300) -> str:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, words)], capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def ranks(folder: Path, algorithm: str, devices: int, accumulate: int) -> list[dict[str, Any]]:
    out = folder / f"{devices}.json"
    run("ranks", out, algorithm, devices, accumulate)
    return [json.loads(Path(f"{out}.{rank}").read_text()) for rank in range(devices)]


@pytest.mark.parametrize(
    ("algorithm", "accumulate"), [("rigl", 1), ("rigl", 2), ("set", 1), ("magnitude", 1), ("chex", 1)]
)
def test_two_ranks_are_one_process_on_the_union_batch(algorithm: str, accumulate: int, tmp_path: Path) -> None:
    one, two = ranks(tmp_path, algorithm, 2, accumulate)
    (single,) = ranks(tmp_path, algorithm, 1, accumulate)
    assert one["steps"] == two["steps"] == single["steps"] == 20
    assert one["digests"] == two["digests"]  # after every update, with another seed on every rank
    assert len({tuple(digest) for digest in one["digests"]}) > 5  # and the masks did change
    assert one["digests"] == single["digests"]
    for name, value in single["weights"].items():
        assert torch.equal(torch.tensor(one["weights"][name]), torch.tensor(two["weights"][name]))
        torch.testing.assert_close(torch.tensor(one["weights"][name]), torch.tensor(value), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("algorithm", "optimizer"),
    [("rigl", "momentum"), ("magnitude", "momentum"), ("rigl", "adamw"), ("magnitude", "adamw"), ("chex", "momentum")],
)
def test_a_killed_run_resumes_bit_identical_at_five_steps(algorithm: str, optimizer: str, tmp_path: Path) -> None:
    lines = run("kill", tmp_path, algorithm, optimizer).splitlines()
    told = [line for line in lines if line.startswith("killed at step")]
    assert len(told) == 5
    assert all(line.endswith(": identical") for line in told), told


def test_ranks_that_disagree_are_named(tmp_path: Path) -> None:
    class TwoRanks:
        """Stands for a trainer of two processes whose second one has another mask."""

        world_size = 2

        class strategy:  # noqa: N801
            root_device = torch.device("cpu")

            @staticmethod
            def all_gather(own: torch.Tensor) -> torch.Tensor:
                other = own.clone()
                other[1] += 1
                return torch.stack([own, other])

    from training import rigl

    callback: SparseTraining = rigl(algorithm=RigL())
    fit = trainer(tmp_path, max_epochs=5, callbacks=[callback])
    fit.fit(Plain(), torch.utils.data.DataLoader(data(), 16))
    assert callback.sparsifier is not None
    check_ranks_agree(fit, callback.sparsifier, 7)  # a single process agrees with itself
    with pytest.raises(WrongNumbersError, match=r"step 7, net\.3 differs on rank 1 from rank 0"):
        check_ranks_agree(TwoRanks(), callback.sparsifier, 7)  # type: ignore[arg-type]
