"""Ways to ask a host: ``live``, ``replay`` of a recorded machine, and ``record`` (live, written down, redacted)."""
