"""How much memory a model takes under vLLM, computed before anything is started.

    geometry.py   what of a config.json decides about memory
    weights.py    bytes of the parameters on each GPU
    cache.py      pages, blocks and groups of the KV cache and the recurrent state, as vLLM cuts them
    overhead.py   what a start takes besides: activations, CUDA context, graphs; calibrated on real runs
    plan.py       all of it together: fits or not, how many tokens, which limit binds, what a change would bring
    render.py     a plan as text with one chart, and as JSON

vLLM is never imported: its rules are written down anew, release by release (``tables/vllm_memory.json`` says which
release does what), and each is held against the logs of real starts (``tables/memory_runs.json``).
"""
