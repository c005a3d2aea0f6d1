"""TRIAGE-001: the log of the last server, as it was written."""

from host import FAIL, OK, SKIP, UNKNOWN, Case, Row, table

LOG = "read {work}/jobs/server.log"
UP = "(APIServer pid=7) INFO 11-30 05:00:00 [api_server.py:1] vLLM API server version 0.19.1\n(APIServer pid=7) INFO:     Application startup complete.\n"
KV = "(EngineCore pid=9) ERROR 11-30 05:00:00 [core.py:1100] ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.\n"

CASES: list[Case] = [
    *table(
        "TRIAGE-001",
        {LOG: UP},
        Row("came up", OK, {}, {"lines read": 2, "lines that speak of a failure": 0}),
        Row("says its cause", FAIL, {LOG: KV}, {"cause": "no-memory-for-kv-blocks (stated)"}, says="gpu-memory-utilization"),
        Row("died of it and came up later", OK, {LOG: UP.split("\n", maxsplit=1)[0] + "\n" + KV + UP}),
        Row("says what nobody knows", UNKNOWN, {LOG: UP + "OddError: what now\n"}, {"line 3": "OddError: what now"}, says="no signature knows"),
        Row("says nothing", UNKNOWN, {LOG: ""}, says="none of a server at work"),
        Row("is not there", SKIP, {LOG: None}, says="no server of this workspace was started"),
    ),
]  # fmt: skip
