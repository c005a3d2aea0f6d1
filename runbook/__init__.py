"""The runbook: from bare driver to a served Qwen3.5 model, one layer at a time, with evidence."""

__version__ = "0.1.0"
