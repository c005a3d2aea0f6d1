"""Facts from a Prometheus text page (``/metrics``), read with prometheus-client's own parser."""


def totals(page: str) -> dict[str, float]:
    """Sample name -> sum over all label sets; empty when the page is no Prometheus text."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - slow; one check needs it

    sums: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    except (ValueError, KeyError, IndexError):
        return {}
    return sums
