"""Native libraries of an environment read as data, never loaded: machine code (``code``) and links (``link``).

``python -m runbook.binaries SITE`` prints both for every library below a site-packages folder; see ``__main__``.
"""
