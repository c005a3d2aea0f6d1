"""Nothing is touched before a yes: given by an option, or typed at a terminal."""

import sys

import typer


def given(yes: bool) -> bool:  # noqa: FBT001 - the option's value, passed on
    """True when the user said yes; a pipeline that did not is told how."""
    if yes:
        return True
    if sys.stdin.isatty() and sys.stdout.isatty():
        return typer.confirm("go ahead?")
    typer.echo("shown only; add --yes to do it")
    return False
