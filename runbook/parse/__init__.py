"""Text into facts, one module per tool or file. Pure, and never raises on odd text: what cannot be read is None or empty."""
