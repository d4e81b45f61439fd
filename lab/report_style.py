"""The look of the report."""

STYLE = """
:root { color-scheme: light; --ink: #1d2430; --soft: #5b6675; --line: #e1e5ea; --accent: #d55e00; }
body { margin: 0; background: #f5f6f8; color: var(--ink);
       font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 40px 24px 64px; }
.brand { margin: 0; font-weight: 700; color: var(--accent); letter-spacing: .02em; }
.brand span { color: var(--soft); font-weight: 400; margin-left: .6em; }
h1 { font-size: 32px; line-height: 1.2; margin: .35em 0 .3em; }
h2 { font-size: 20px; margin: 2.2em 0 .6em; }
.lead { color: var(--soft); font-size: 18px; margin: 0 0 1.6em; }
.wide { overflow-x: auto; background: #fff; border: 1px solid var(--line); border-radius: 10px; }
table { border-collapse: collapse; width: 100%; font-size: 14.5px;
        font-variant-numeric: tabular-nums; }
th, td { padding: 10px 11px; text-align: right; white-space: nowrap; }
th { white-space: normal; color: var(--soft); font-weight: 600; font-size: 13px;
     vertical-align: bottom; }
td { border-top: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
td:first-child { font-weight: 600; }
td.failed { text-align: left; color: #b00020; white-space: normal; }
figure { margin: 24px 0 0; background: #fff; border: 1px solid var(--line); border-radius: 10px;
         padding: 20px; text-align: center; }
figure img { width: 100%; max-width: 900px; height: auto; }
dl { display: grid; grid-template-columns: minmax(150px, 250px) 1fr; margin: 0; background: #fff;
     border: 1px solid var(--line); border-radius: 10px; padding: 12px 18px; font-size: 15px; }
dt { font-weight: 600; padding: 4px 16px 4px 0; overflow-wrap: anywhere; }
dd { margin: 0; padding: 4px 0; color: #39424f; overflow-wrap: anywhere; }
pre { background: #1d2430; color: #f2f4f7; padding: 14px 18px; border-radius: 10px;
      overflow-x: auto; }
footer { margin-top: 2.5em; color: var(--soft); font-size: 14px; }
@media print { body { background: #fff; } figure, .wide, dl { break-inside: avoid; } }
"""
