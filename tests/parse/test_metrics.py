"""Pages of Prometheus text that both releases really exported, and odd ones."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.parse import metrics
from runbook.serving import reading

PAGES = Path(__file__).parents[1] / "data" / "metrics"
RELEASES = ("0.19.1", "0.32.0")


def page(name: str) -> metrics.Metrics:
    return metrics.read((PAGES / f"{name}.txt").read_text(encoding="utf-8"))


@pytest.mark.parametrize("release", RELEASES)
def test_what_checks_and_gauges_ask_for_is_exported(release: str) -> None:
    found = page(release)
    for name in reading.COUNTERS.values():
        assert found.total(name) is not None, name
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        assert found.total(f"vllm:{name}") is not None, name
    assert found.labels("vllm:cache_config_info")["num_gpu_blocks"].isdigit()


@pytest.mark.parametrize("release", RELEASES)
def test_counters_agree_with_each_other(release: str) -> None:
    found = page(release)
    finished = found.by_label("vllm:request_success_total", "finished_reason")
    assert sum(finished.values()) == found.total("vllm:request_success_total")
    assert finished["length"] > 0
    buckets = found.by_label("vllm:time_to_first_token_seconds_bucket", "le")
    assert buckets["+Inf"] == found.total("vllm:time_to_first_token_seconds_count")
    assert sorted(buckets.values()) == [
        buckets[le] for le in sorted(buckets, key=lambda le: math.inf if le == "+Inf" else float(le))
    ]
    prompts, finished_prompts = (
        found.total(f"vllm:{name}") for name in ("prompt_tokens_total", "request_prompt_tokens_sum")
    )
    assert prompts is not None
    assert finished_prompts is not None
    assert prompts >= finished_prompts > 0, "what was given up is read, and never finishes"


def test_what_a_release_does_not_export_is_absent_not_zero() -> None:
    old, new = page("0.19.1"), page("0.32.0")
    assert old.total("vllm:num_requests_waiting_by_reason", reason="deferred") is None
    assert new.total("vllm:num_requests_waiting_by_reason", reason="deferred") == 0
    assert old.total("vllm:gpu_cache_usage_perc") is None
    assert old.by_label("vllm:no_such", "x") == {}
    assert old.labels("vllm:no_such") == {}
    assert old.most("vllm:no_such") is None


def test_labels_select_and_a_share_is_not_added_up() -> None:
    found = metrics.read(
        '# TYPE a counter\na_total{e="0",m="x"} 2\na_total{e="1",m="x"} 3\na_total{e="1",m="y"} 4\n'
        '# TYPE use gauge\nuse{e="0"} 0.9\nuse{e="1"} 0.4\n'
    )
    assert found.total("a_total") == 9
    assert found.total("a_total", e="1") == 7
    assert found.total("a_total", e="1", m="y") == 4
    assert found.total("a_total", e="2") is None
    assert found.by_label("a_total", "m") == {"x": 5, "y": 4}
    assert found.most("use") == 0.9


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "<html><body>502 Bad Gateway</body></html>",
        '{"error": "no"}',
        "a{b=",
        'a{b="c"} x',
        "# TYPE a\n# HELP\n",
        "a{} {}",
        "\x00\x01",
        "a{b='c'} 1",
    ],
)
def test_what_is_no_prometheus_text_has_no_samples(text: str) -> None:
    assert not metrics.read(text)
    assert metrics.totals(text) == {}


@given(st.text(max_size=200) | st.text(alphabet='a:_{}=",\\ \n#TYPEHL1.0+eNaInf', max_size=80))
def test_no_text_raises(text: str) -> None:
    metrics.read(text)


@given(st.integers(0, 20_000))
def test_a_page_cut_anywhere_is_read_or_refused(at: int) -> None:
    whole = (PAGES / "0.19.1.txt").read_text(encoding="utf-8")
    cut, found = metrics.read(whole[:at]), page("0.19.1")
    assert set(cut.samples) <= set(found.samples) | set(list(cut.samples)[-1:])
