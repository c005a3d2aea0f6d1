"""Names on PATH, path files, conda's records, and what packages ask of each other: real text, and odd text."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook.parse import python_env, requirement
from runbook.parse.requirement import Asked

WHERE = requirement.environment("3.11", "x86_64")


@pytest.mark.parametrize(
    ("shebang", "interpreter"),
    [
        ("#!/usr/bin/python3", "/usr/bin/python3"),
        ("#! /usr/bin/python3 -sE", "/usr/bin/python3"),
        ("#!/usr/bin/env python3", "python3"),
        ("#!/usr/bin/env -S python3.11 -I", "python3.11"),
        ("#!/usr/bin/env bash", ""),
        ("#!/bin/sh", ""),
        ("#!", ""),
        ("#!/usr/bin/env", ""),
        ("", ""),
    ],
)
def test_the_interpreter_of_a_script(shebang: str, interpreter: str) -> None:
    assert (
        python_env.OnPath("pip", "/usr/bin/pip", "", venv=False, shebang=shebang).interpreter == interpreter
    )


def test_rows_of_the_look_up() -> None:
    text = "python3|/v/bin/python3|/usr/bin/python3.11|venv|\npip|/v/bin/pip||venv|#!/v/bin/python\n"
    first, second = python_env.on_path(text)
    assert (first.name, first.folder, first.real, first.venv, first.shebang) == ("python3", "/v/bin", "/usr/bin/python3.11", True, "")  # fmt: skip
    assert (second.name, second.interpreter) == ("pip", "/v/bin/python")


@pytest.mark.parametrize(
    "text", [None, "", "sh: 1: Syntax error", "|||", "pip|cd||", "pip|relative/pip|||", "||||"]
)
def test_no_rows_in(text: str | None) -> None:
    assert python_env.on_path(text) == ()


@pytest.mark.parametrize(
    ("text", "folders", "early"),
    [
        ("/workspace/vllm\n", ("/workspace/vllm",), False),
        ("# a comment\n\n./here\n  \n", ("./here",), False),
        ("import _cuda_bindings_redirector\n", (), False),
        ("import\tsys; sys.path.insert(0, 'x')", (), True),
        ("import sys, os; sys.path.insert(0, 'x')\n/opt\n", ("/opt",), True),
        (
            "important\n",
            ("important",),
            False,
        ),  # a folder of that name: Python wants a blank or a tab after the word
        ("", (), False),
        (None, (), False),
    ],
)
def test_path_files(text: str | None, folders: tuple[str, ...], *, early: bool) -> None:
    assert python_env.path_file(text) == (folders, early)


def test_records_of_conda() -> None:
    paths = ("/p/conda-meta/python-3.11.7-h955ad1f_0.json", "ca-certificates-2023.12.12-h06a4308_0.json", "/p/conda-meta/history", "a.json")  # fmt: skip
    assert python_env.conda_packages(paths) == {"python": "3.11.7", "ca-certificates": "2023.12.12"}


def test_two_records_of_one_package_are_two() -> None:
    paths = ("/s/numpy-1.26.4.dist-info", "/s/numpy-2.2.6.dist-info", "/s/Foo.Bar-1.dist-info", "/s/numpy")
    assert python_env.installed(paths) == (("numpy", "1.26.4"), ("numpy", "2.2.6"), ("foo-bar", "1"))
    assert python_env.distributions(paths) == {"numpy": "2.2.6", "foo-bar": "1"}


@pytest.mark.parametrize(
    ("text", "minor"),
    [("Python 3.11.7\n", "3.11"), ("3.12.1", "3.12"), ("3.9", "3.9"), ("3", None), ("", None), (None, None), ("Python 3.\N{SUPERSCRIPT TWO}", None), ("pyenv: python: command not found", None)],
)  # fmt: skip
def test_minor_of_a_version(text: str | None, minor: str | None) -> None:
    assert python_env.python_minor(text) == minor


def test_what_pip_left() -> None:
    assert python_env.half_renamed(("/s/~umpy", "/s/~-rch-2.10.0.dist-info", "/s/numpy")) == ("~-rch-2.10.0.dist-info", "~umpy")  # fmt: skip


def test_requirements_are_judged() -> None:
    metadata = (
        "Name: vllm\n"
        "Requires-Dist: torch (==2.10.0)\n"
        "Requires-Dist: Numba==0.61.2\n"
        "Requires-Dist: numpy<2.3,>=1.24\n"
        'Requires-Dist: six>=1.16; python_version > "3.11"\n'
        'Requires-Dist: triton==3.6.0; platform_machine == "x86_64"\n'
        "Requires-Dist: ray; extra == 'ray'\n"
        "Requires-Dist: fastapi[standard]>=0.1\n"
        "Requires-Dist: ??? what\n"
    )
    have = {"torch": "2.10.0+cu128", "numba": "0.61.2", "numpy": "2.4.6", "fastapi": "odd version"}
    assert requirement.judged(metadata, have, WHERE) == (
        Asked("torch", "==2.10.0", "2.10.0+cu128", met=True),
        Asked("numba", "==0.61.2", "0.61.2", met=True),
        Asked("numpy", "<2.3,>=1.24", "2.4.6", met=False),
        Asked("triton", "==3.6.0", None, met=False),
        Asked("fastapi", ">=0.1", "odd version", met=None),
    )


def test_markers_are_judged_by_the_target_not_by_us() -> None:
    metadata = (
        'Requires-Dist: six; python_version > "3.11"\nRequires-Dist: a; platform_machine == "aarch64"\n'
    )
    names = [
        one.package for one in requirement.judged(metadata, {}, requirement.environment("3.13", "aarch64"))
    ]
    assert names == ["six", "a"]
    assert requirement.judged(metadata, {}, WHERE) == ()


@pytest.mark.parametrize(
    ("asked", "have", "only"),
    [("==2.13.0+cpu", "2.13.0", True), ("==2.13.0+cpu", "2.13.0+cu130", True), ("==2.13.0+cpu", "2.10.0", False), ("==2.13.0", "2.13.1", False), (">=2.13.0", "2.13.0", False), ("==2.13.0+cpu", None, False)],
)  # fmt: skip
def test_the_same_release_by_another_local_tag(asked: str, have: str | None, *, only: bool) -> None:
    assert requirement.local_tag_only(Asked("torch", asked, have, met=False)) is only


PIECES = ("Requires-Dist: ", "torch", "==", "2.10.0", ";", " python_version", ' "3.11"', "extra == 'x'", "(", ")", "[", "]", "!=", "@ http://x", "\n", "|", "/", "#!", "~", "-", ".json", ".dist-info", "import ", "\0", "\N{SUPERSCRIPT TWO}", "9" * 3000, " and ", " in ", ",", ">", "1.*", "+cu12")  # fmt: skip
odd = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=4)), max_size=14).map("".join)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(text=odd, version=st.one_of(st.none(), odd))
def test_odd_text_is_survived(text: str, version: str | None) -> None:
    have: dict[str, Any] = {} if version is None else dict.fromkeys(("torch", "a", "x"), version)
    for one in requirement.judged("Requires-Dist: torch" + text, have, WHERE):
        assert isinstance(one.met, bool | None)
        requirement.local_tag_only(one)
    for each in python_env.on_path(text):
        assert isinstance(each.interpreter, str)
        assert each.path.startswith("/")
    python_env.path_file(text)
    python_env.python_minor(text)
    python_env.conda_packages(text.splitlines())
    python_env.half_renamed(text.splitlines())
    python_env.installed(text.splitlines())
