"""The verdict of a report in words: one state, one sentence, one line of detail."""

from dataclasses import dataclass
from enum import StrEnum

from sparsetorch.report.collect import Contents


class State(StrEnum):
    """How it stands with the sparse path."""

    WRONG = "wrong"
    UNSAFE = "unsafe"
    OBSERVED = "observed"
    ELIGIBLE = "eligible"
    PARTLY = "partly"
    NOT = "not"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Headline:
    """What a reader sees first."""

    state: State
    words: str
    detail: str


def headline(contents: Contents) -> Headline:
    """What is known, the strongest first: observed, then predicted; wrong numbers before everything."""
    verdict = contents.verdict
    if verdict is None:
        return Headline(State.UNKNOWN, "Not exported yet", "There is no .tflite file to judge.")
    bad = [words for one in contents.observed.values() for words in (*one.wrong, *one.disagreements)]
    if bad:
        return Headline(State.WRONG, "Observed otherwise than predicted", bad[0])
    if verdict.unsafe:
        names = [name for name, target in verdict.targets.items() if target.unsafe]
        why = next(target.why_not or "" for target in verdict.targets.values() if target.unsafe)
        return Headline(State.UNSAFE, f"Unsafe: wrong numbers, or no start, on {_list(names)}", why)
    yes = [name for name, target in verdict.targets.items() if target.eligible]
    no = [name for name, target in verdict.targets.items() if not target.eligible]
    if not yes:
        why = next((target.why_not or "" for target in verdict.targets.values()), "")
        return Headline(State.NOT, "Not eligible for the sparse path", why)
    expected = f"{verdict.expected_spmm} sparse matrix multiplications"
    taken = {name: one for name, one in contents.observed.items() if one.taken}
    if taken and not no:
        seen = "; ".join(
            f"{one.spmm} of {verdict.expected_spmm} seen in {name} ({one.version})" for name, one in taken.items()
        )
        return Headline(State.OBSERVED, "The sparse path is taken", f"Sparse matrix multiplications: {seen}.")
    if no:
        why = next(target.why_not or "" for target in verdict.targets.values() if not target.eligible)
        return Headline(State.PARTLY, f"Eligible on {_list(yes)}, not on {_list(no)}", why)
    told = "A prediction by XNNPACK's rules; sparsetorch verify --observe wasm looks." if not contents.observed else ""
    return Headline(
        State.ELIGIBLE, f"Eligible for the sparse path on {_list(yes)}", f"{expected} expected. {told}".strip()
    )


def _list(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
