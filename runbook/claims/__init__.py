"""What is said about serving Qwen3.5 with vLLM 0.19.1, and what is so: a ledger that a machine can go through again.

<article>/<layer>.yaml   the entries, in the order of their ids; article and layer stand in the path only
ledger.py                reads them
probes/                  the kinds of readings an entry may rest on, as data: no shell, no expressions
target.py                an environment that is asked, its interpreter started once for all questions
verify.py                every probe that can run here, and whether its verdict stands
render.py                entries and outcomes as text, JSON and the page docs/claims.md
"""
