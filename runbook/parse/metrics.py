"""Facts from a Prometheus text page (``/metrics``), read with prometheus-client's own parser.

Names are those the server exports: a counter's samples end in ``_total``, a histogram's in ``_bucket``, ``_sum`` and
``_count``. What a release does not export is absent here, never zero.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Metrics:
    """One reading of the page: (sample name, its labels sorted) -> value."""

    samples: Mapping[tuple[str, tuple[tuple[str, str], ...]], float]

    def __bool__(self) -> bool:
        """False for a page that was no Prometheus text."""
        return bool(self.samples)

    def total(self, name: str, **labels: str) -> float | None:
        """The sum over all label sets that hold ``labels``; None when there is no such sample."""
        wanted = set(labels.items())
        found = [value for (have, of), value in self.samples.items() if have == name and wanted <= set(of)]
        return sum(found) if found else None

    def most(self, name: str) -> float | None:
        """The largest over all label sets, as of a share that each engine has of its own; None when there is no such sample."""
        return max((value for (have, _), value in self.samples.items() if have == name), default=None)

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """Value of that label -> sum of its samples, as of the reasons of ``vllm:request_success_total``."""
        sums: dict[str, float] = {}
        for (have, of), value in self.samples.items():
            key = dict(of).get(label)
            if have == name and key is not None:
                sums[key] = sums.get(key, 0.0) + value
        return sums

    def labels(self, name: str) -> dict[str, str]:
        """The labels of the first sample of that name, as of ``vllm:cache_config_info``; empty when there is none."""
        return next((dict(of) for have, of in self.samples if have == name), {})


def read(page: str) -> Metrics:
    """The samples of a page; none when it is no Prometheus text."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - slow; few checks need it

    samples: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    try:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                samples[sample.name, tuple(sorted(sample.labels.items()))] = float(sample.value)
    except (ValueError, KeyError, IndexError):
        return Metrics({})
    return Metrics(samples)


def totals(page: str) -> dict[str, float]:
    """Sample name -> sum over all label sets; empty when the page is no Prometheus text."""
    sums: dict[str, float] = {}
    for (name, _), value in read(page).samples.items():
        sums[name] = sums.get(name, 0.0) + value
    return sums
