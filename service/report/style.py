"""How the page looks, light and dark, on screens and on paper."""

from __future__ import annotations

import base64
import hashlib

CSS = """
:root { color-scheme: light dark; --ground: #fbfbf9; --ink: #1d2330; --dim: #626b7c; --line: #dfe1e6;
  --up: #0b7a53; --down: #b3372f; --accent: #2d5bb9; --warn: #a86500; --card: #ffffff; }
@media screen and (prefers-color-scheme: dark) { :root { --ground: #14171d; --ink: #e6e9ef; --dim: #9aa4b5;
  --line: #30363f; --up: #4cc38a; --down: #f2827a; --accent: #86a9f7; --warn: #e8b04b; --card: #1b1f27; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 76rem; background: var(--ground);
  color: var(--ink); font: 15px/1.55 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.7rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .2rem; border-top: 1px solid var(--line); padding-top: 1.6rem;
  overflow-wrap: anywhere; }
h3 { font-size: 1rem; margin: 1.8rem 0 .4rem; overflow-wrap: anywhere; }
p { margin: .4rem 0; max-width: 54rem; overflow-wrap: anywhere; }
.dim { color: var(--dim); font-size: .9rem; } .warn { color: var(--warn); font-weight: 600; }
nav { overflow-wrap: anywhere; } nav a { color: var(--accent); margin-right: .9rem; }
.facts { display: flex; flex-wrap: wrap; gap: .5rem; margin: 1rem 0; padding: 0; list-style: none; }
.facts li { background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  padding: .45rem .8rem; } .facts b { display: block; font-size: 1.1rem; font-variant-numeric: tabular-nums; }
.facts span { color: var(--dim); font-size: .82rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .88rem; margin: .6rem 0;
  font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--dim); overflow-wrap: anywhere; }
th, td { padding: .22rem .7rem .22rem 0; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; } thead th { color: var(--dim); font-weight: 500; }
th:first-child { text-align: left; font-weight: 500; min-width: 8rem; max-width: 22rem; white-space: normal;
  overflow-wrap: anywhere; unicode-bidi: isolate; } .counts td { white-space: normal; }
details { margin: .5rem 0; } summary { cursor: pointer; color: var(--accent); }
figure { margin: .6rem 0; } svg { display: block; overflow: visible; }
.rows { position: relative; } .row svg { position: relative; width: 100%; height: 22px; }
.behind { position: absolute; left: 15.75rem; width: calc(100% - 25.5rem); top: 0;
  height: calc(100% - 16px); }
.row { display: grid; grid-template-columns: 15rem 1fr 9rem; column-gap: .75rem; align-items: center;
  font-size: 12px; line-height: 22px; }
.name { unicode-bidi: isolate; overflow: hidden; white-space: nowrap; text-align: right; }
.number { white-space: nowrap; font-variant-numeric: tabular-nums; }
.row.axis svg { height: 16px; } .up { color: var(--up); } .down { color: var(--down); }
.axis svg { grid-column: 2; }
@media (max-width: 40rem) { .row { grid-template-columns: 1fr auto; } .name { text-align: left; }
  .row svg { grid-column: 1 / -1; grid-row: 2; } .row.axis svg { grid-row: 1; }
  .name, .number { position: relative; background: var(--ground); } .behind { left: 0; width: 100%; } }
svg text { fill: var(--ink); font: 12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif;
  unicode-bidi: plaintext; } svg .tick { fill: var(--dim); font-size: 10.5px; }
.grid { stroke: var(--line); } .neutral { stroke: var(--dim); stroke-dasharray: 3 3; }
.threshold { stroke: var(--warn); stroke-dasharray: 2 4; } .critical { stroke: var(--ink); stroke-width: 2; }
.bar { stroke-width: 2; stroke: var(--dim); } .bar.up { stroke: var(--up); }
.bar.down { stroke: var(--down); }
.point { fill: var(--dim); } .point.up { fill: var(--up); } .point.down { fill: var(--down); }
.point.unknown, .dot.unknown { fill: var(--ground); stroke: var(--dim); stroke-width: 1.5; }
.fill { fill: var(--dim); opacity: .5; } .fill.noticeable { fill: var(--warn); opacity: .55; }
.fill.large { fill: var(--warn); opacity: 1; } .break { stroke: var(--ground); stroke-width: 3; }
.band { fill: var(--accent); opacity: .2; } .line { fill: none; stroke: var(--accent); stroke-width: 1.8; }
.dot { fill: var(--accent); } .profiles { display: grid; gap: .6rem;
  grid-template-columns: repeat(auto-fill, minmax(230px, 1fr)); }
.profiles svg { width: 100%; max-width: 300px; height: auto; background: var(--card);
  border: 1px solid var(--line); border-radius: .5rem; }
@media print { :root { --ground: #ffffff; } body { max-width: none; padding: 0; }
  details::details-content { content-visibility: visible; block-size: auto; }
  .rows, .profiles svg, tr, li { break-inside: avoid; } h2, h3, p, summary, caption { break-after: avoid; }
  .scroll { overflow: visible; } table { font-size: .62rem; }
  th, td { padding-right: .4rem; } thead th { white-space: normal; } }
"""

#: The page may use this style sheet, and nothing else from anywhere.
POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'sha256-"
    + base64.b64encode(hashlib.sha256(CSS.encode()).digest()).decode()
    + "'"
)
