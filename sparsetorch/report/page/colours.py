"""Colours of the page and its figures, by what they mean, for both themes; and the rules that figures are styled by.

Figures name classes only. On the page the colours are CSS variables, which the theme sets; a figure that is downloaded carries
the rules with the light colours put in, since few drawing programs know variables.
"""

import re
from functools import cache

LIGHT = {
    "paper": "#ffffff",
    "page": "#f5f6f8",
    "ink": "#14181f",
    "muted": "#596273",
    "line": "#d5dae2",
    "dense": "#8b94a5",
    "sparse": "#0b7a6f",
    "inside": "#63b8ad",
    "band": "#dff3f0",
    "border": "#6d4bd1",
    "breaker": "#b4490b",
    "breaker-band": "#fdeadd",
    "unsafe": "#b5123f",
    "unsafe-band": "#fce3ea",
    "cold": "#35508f",
    "warm": "#8f6a00",
}
DARK = {
    "paper": "#171b22",
    "page": "#0e1116",
    "ink": "#e9edf3",
    "muted": "#a3adbd",
    "line": "#343c49",
    "dense": "#7b8698",
    "sparse": "#35cdb9",
    "inside": "#23857a",
    "band": "#12312f",
    "border": "#ab93ff",
    "breaker": "#ff9a57",
    "breaker-band": "#3a2415",
    "unsafe": "#ff7b9c",
    "unsafe-band": "#3d1622",
    "cold": "#86a4f0",
    "warm": "#e3c04a",
}
"""Text colours (ink, muted, sparse, border, breaker, unsafe) have a contrast of at least 4.5 to the paper and to their bands."""

FIGURE_RULES = """
text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 11px; fill: var(--ink); }
.muted { fill: var(--muted); font-size: 10px; } .strong { font-weight: 650; } .end { text-anchor: end; }
.middle { text-anchor: middle; }
.paper { fill: var(--paper); } .grid { stroke: var(--line); stroke-width: 1; fill: none; }
.axis { stroke: var(--muted); stroke-width: 1; fill: none; }
.track { fill: var(--line); } .dense { fill: var(--dense); } .sparse { fill: var(--sparse); } .inside { fill: var(--inside); }
.entry, .exit, .border-bar { fill: var(--border); } .breaker { fill: var(--breaker); } .unsafe { fill: var(--unsafe); }
.outside, .port { fill: var(--dense); }
.candidate { fill: var(--paper); stroke: var(--sparse); stroke-width: 2; }
.band { fill: var(--band); } .breaker-band { fill: var(--breaker-band); } .unsafe-band { fill: var(--unsafe-band); }
.wire { stroke: var(--dense); stroke-width: 1.5; fill: none; } .wire.first { stroke: var(--sparse); stroke-width: 3; }
.whisker { stroke: var(--ink); stroke-width: 1.5; fill: none; }
.total { stroke: var(--ink); stroke-width: 2.5; fill: none; }
.early { stroke: var(--cold); } .late { stroke: var(--warm); }
.early, .late { stroke-width: 1; fill: none; opacity: 0.55; }
text.breaker, text.unsafe { font-size: 10px; } .sign { font-size: 10px; font-weight: 700; fill: var(--paper); }
"""


def variables(colours: dict[str, str]) -> str:
    """`--ink: #14181f; ...`"""
    return " ".join(f"--{name}: {value};" for name, value in colours.items())


@cache
def resolved_rules() -> str:
    """The rules with the light colours in place of variables."""
    return re.sub(r"var\(--([a-z-]+)\)", lambda found: LIGHT[found.group(1)], FIGURE_RULES)
