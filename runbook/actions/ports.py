"""Ports: one that is free, and who holds one that is not; asked before a server is started, not 20 s into its imports."""

import errno
import os
import socket

import psutil

from runbook.errors import ActionFailed, BadParameter

PRIVILEGED = 1024


def free(host: str) -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def demanded(port: int, host: str) -> int:
    """The port itself, when a server may listen on it.

    Raises:
        BadParameter: this user may not listen on it, or there is no such address.
        ActionFailed: it is taken; says by whom.
    """
    with socket.socket() as probe:
        # As vLLM asks for it: a connection that was closed a moment ago holds no port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as why:
            if why.errno == errno.EADDRINUSE:
                raise ActionFailed(
                    f"port {port} is taken by {holder(port)}",
                    "a port nobody listens on",
                    f"end that, or take another: --port {free(host)} is free",
                ) from None
            allowed = (
                f"a port from {PRIVILEGED} on" if why.errno == errno.EACCES else "an address of this machine"
            )
            raise BadParameter(f"port {port} on {host}: {os.strerror(why.errno or 0)}", allowed) from None
    return port


def holder(port: int) -> str:
    """Who listens on a TCP port, in words; processes of other users may not be seen."""
    try:
        found = [
            one
            for one in psutil.net_connections("tcp")
            if one.status == psutil.CONN_LISTEN and one.laddr and one.laddr[1] == port
        ]
    except psutil.AccessDenied:
        found = []
    pids = sorted({one.pid for one in found if one.pid})
    if not pids:
        return "a process that this user may not look at"
    try:
        process = psutil.Process(pids[0])
        # The program and what it runs, no more of its words: keys are handed over in words, too.
        program, *rest = process.cmdline()[:3] or [process.name()]
        words = " ".join([program.rpartition("/")[2], *(word for word in rest if not word.startswith("--"))])
        return f"process {pids[0]} of user {process.username()} ({words[:80]})"
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return f"process {pids[0]}"
