"""``python -m runbook`` is the ``runbook`` command."""

from runbook.cli import main

main()
