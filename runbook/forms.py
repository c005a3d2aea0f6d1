"""The forms in which a command prints its answer."""

from enum import Enum


class Form(str, Enum):
    """Text for a reader, or JSON for a program."""

    TEXT = "text"
    JSON = "json"
