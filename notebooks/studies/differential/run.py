"""Random small sparse networks: what the rules expect against what real runtimes do.

    python notebooks/studies/differential/run.py --seeds 2000

Each network (tests/random_sparse.py: a stem, some pieces, a tail, sometimes what does not fit) is judged by the rules of each
runtime's XNNPACK revision and then run there: operators by name in tfjs-tflite, numbers in LiteRT.js, both on an emulated
processor for every tenth. One line a network and runtime goes to results.csv, disagreements to standard output. No converter,
no network; `sparsetorch runtime install wasm emulated` first.
"""

import argparse
import csv
import sys
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2] / "tests"))

from differential import ENGINES, Outcome, examine, jobs_of  # noqa: E402

COLUMNS = ("seed", "engine", "expected", "unsafe", "seen", "error", "failure", "agrees")
BATCH = 50


def line(seed: int, outcome: Outcome) -> dict[str, object]:
    """One row of the table."""
    found = outcome.comparison
    assert found.prediction is not None
    return {
        "seed": seed,
        "engine": found.engine,
        "expected": found.prediction.counts.spmm,
        "unsafe": int(bool(found.prediction.unsafe)),
        "seen": "" if found.counts is None else found.counts.spmm,
        "error": "" if found.error is None else f"{found.error:.1e}",
        "failure": found.failure.splitlines()[0][:60] if found.failure else "",
        "agrees": int(not found.disagreements),
    }


def main(words: list[str] | None = None) -> int:
    """Examine the networks; 1 if rules and runtimes disagree anywhere."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2000, help="networks (default: 2000)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first (default: 0)")
    parser.add_argument("--emulate-every", type=int, default=10, help="emulation is slow (default: every tenth)")
    parser.add_argument("--output", type=Path, default=HERE / "results.csv")
    args = parser.parse_args(words)
    started, counts, versions = time.monotonic(), Counter[tuple[str, bool]](), dict[str, str]()
    with args.output.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        for begin in range(args.first, args.first + args.seeds, BATCH):
            seeds = range(begin, min(begin + BATCH, args.first + args.seeds))
            for engine in ENGINES:
                chosen = [seed for seed in seeds if engine.name != "emulated" or seed % args.emulate_every == 0]
                with jobs_of(chosen) as (jobs, folder):
                    for seed, outcome in zip(chosen, examine(engine, jobs, folder), strict=True):
                        table.writerow(line(seed, outcome))
                        versions[engine.name] = outcome.version
                        counts[engine.name, not outcome.comparison.disagreements] += 1
                        for words in outcome.comparison.disagreements:
                            print(f"seed {seed}: {words}", flush=True)
            file.flush()
            print(f"{time.monotonic() - started:6.0f} s  {seeds.stop - args.first} networks", flush=True)
    for engine in ENGINES:
        agree, differ = counts[engine.name, True], counts[engine.name, False]
        print(f"{engine.name} ({versions.get(engine.name, 'not run')}): {agree} agree, {differ} do not")
    return int(any(not agrees for _, agrees in counts))


if __name__ == "__main__":
    raise SystemExit(main())
