"""How the page looks, light and dark, on screens and on paper."""

from __future__ import annotations

import base64
import hashlib

CSS = """
:root { color-scheme: light dark; --ground: #fbfbf9; --ink: #1d2330; --dim: #626b7c; --line: #dfe1e6;
  --up: #0b7a53; --down: #b3372f; --accent: #2d5bb9; --warn: #a86500; --card: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171d; --ink: #e6e9ef; --dim: #9aa4b5;
  --line: #30363f; --up: #4cc38a; --down: #f2827a; --accent: #86a9f7; --warn: #e8b04b; --card: #1b1f27; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 62rem; background: var(--ground);
  color: var(--ink); font: 15px/1.55 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.7rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .2rem; border-top: 1px solid var(--line); padding-top: 1.6rem;
  overflow-wrap: anywhere; }
h3 { font-size: 1rem; margin: 1.8rem 0 .4rem; }
p { margin: .4rem 0; max-width: 54rem; } .dim, figcaption { color: var(--dim); font-size: .9rem; }
nav a { color: var(--accent); margin-right: .9rem; } code { font-size: .9em; overflow-wrap: anywhere; }
figure { margin: .6rem 0; } .warn { color: var(--warn); font-weight: 600; }
.facts { display: flex; flex-wrap: wrap; gap: .5rem; margin: 1rem 0; padding: 0; list-style: none; }
.facts li { background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  padding: .45rem .8rem; } .facts b { display: block; font-size: 1.1rem; font-variant-numeric: tabular-nums; }
.facts span { color: var(--dim); font-size: .82rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .88rem; margin: .4rem 0;
  font-variant-numeric: tabular-nums; }
th, td { padding: .22rem .7rem .22rem 0; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; } th:first-child { text-align: left; font-weight: 500; max-width: 22rem;
  overflow: hidden; text-overflow: ellipsis; } thead th { color: var(--dim); font-weight: 500; }
details { margin: .5rem 0; } summary { cursor: pointer; color: var(--accent); }
svg { display: block; max-width: 100%; height: auto; font: 12px system-ui, "DejaVu Sans", sans-serif; }
svg text { fill: var(--ink); } svg .tick { fill: var(--dim); font-size: 10.5px; }
svg .number { font-variant-numeric: tabular-nums; }
svg .grid { stroke: var(--line); } svg .neutral { stroke: var(--dim); stroke-dasharray: 3 3; }
svg .threshold { stroke: var(--warn); stroke-dasharray: 2 4; }
svg .critical { stroke: var(--ink); stroke-width: 2; }
svg .bar { stroke-width: 2; stroke: var(--dim); } svg .bar.up { stroke: var(--up); }
svg .bar.down { stroke: var(--down); } svg .point { fill: var(--dim); } svg .point.up { fill: var(--up); }
svg .point.down { fill: var(--down); } svg text.up { fill: var(--up); } svg text.down { fill: var(--down); }
svg .fill { fill: var(--dim); opacity: .55; } svg .fill.beyond { fill: var(--warn); opacity: .9; }
svg .band { fill: var(--accent); opacity: .2; }
svg .line { fill: none; stroke: var(--accent); stroke-width: 1.8; }
svg .dot { fill: var(--accent); } .profiles { display: flex; flex-wrap: wrap; gap: .6rem; }
.profiles svg { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; }
@media print { body { max-width: none; } details { display: block; } }
"""

#: The page may use this style sheet, and nothing else from anywhere.
POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'sha256-"
    + base64.b64encode(hashlib.sha256(CSS.encode()).digest()).decode()
    + "'"
)
