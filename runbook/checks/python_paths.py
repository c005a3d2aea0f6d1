"""PY: which Python a name starts, and what gets into the target's import path from elsewhere."""

from collections.abc import Iterable

from runbook.checks.readings import distributions
from runbook.checks.target import PYVENV, some, target_minor
from runbook.model import Answer, Evidence, Fix, Layer, Risk, Source, check, fail, ok, skip, unknown, warn
from runbook.parse import python_env
from runbook.parse.python_env import OnPath
from runbook.probe import Probe

NAMES = "python python3 pip pip3 conda uv jupyter vllm torchrun"
# One shell for all names: what it starts for each, the file behind the links of a python, whether that lies in a
# virtual environment, and the first line of a script.
LOOK_UP = (
    f"for n in {NAMES}; do p=$(command -v $n) || continue; r=; v=; l=; "
    'case $n in python*) r=$(readlink -f "$p");; esac; [ -f "${p%/*}/../pyvenv.cfg" ] && v=venv; '
    'IFS= read -r l <"$p"; case $l in "#!"*) ;; *) l=;; esac; echo "$n|$p|$r|$v|$l"; done'
)
ARGV = ["sh", "-c", LOOK_UP]
OF_PYTHON = ("pip", "pip3", "vllm", "torchrun")  # scripts that should start the Python of the same shell
ACTIVE = ("VIRTUAL_ENV", "CONDA_PREFIX")
USER_SITE = "{home}/.local/lib/python3*/site-packages/*.dist-info"
PTH, EGG_LINK = "{site}/*.pth", "{site}/*.egg-link"


def plain(folder: str) -> str:
    """``/bin`` is ``/usr/bin`` on today's systems."""
    return {"/bin": "/usr/bin", "/sbin": "/usr/sbin"}.get(folder, folder)


def starts_another(script: OnPath, pythons: Iterable[OnPath]) -> bool:
    """True when a script is not one of these interpreters'.

    Shims of pyenv and asdf choose by folder and setting: all in one folder choose alike. The file behind the links of a
    venv's python is the interpreter it was made from, and says nothing about whose a script is.
    """
    named = script.interpreter
    for python in pythons:
        folders = {plain(python.folder)} | (set() if python.venv else {python.real.rpartition("/")[0]})
        if named and plain(named.rpartition("/")[0]) in folders | {""}:
            return False
        if not named and python.folder == script.folder:
            return False
    return True


@check(
    "PY-009",
    layer=Layer.PY,
    title="The names python, pip and vllm start one and the same Python",
    why="With another pip first on PATH every install lands where nothing is imported from: a 'phantom Python'.",
    source=Source(
        "Python packaging guide: which pip goes with which Python",
        "https://packaging.python.org/en/latest/tutorials/installing-packages/",
        "2026-11-30",
    ),
)
def names_agree(host: Probe) -> Answer:
    """One look-up on PATH; a script's first line names the interpreter it starts. Nothing is started."""
    ran = host.run(ARGV)
    found = {one.name: one for one in python_env.on_path(ran.out)}
    if ran.missing or ran.timed_out or (not found and not ran.ok):
        return unknown("the shell that looks names up on PATH gave no answer")
    pythons = [found[name] for name in ("python", "python3") if name in found]
    if not pythons:
        return skip("there is no python on PATH, so no name can mean another one")
    # The question itself is too long for a line; its page shows it.
    seen = [Evidence(one.name, _told(one), "PATH, see runbook explain PY-009") for one in found.values()]
    wrong = [f"{name} is not of {pythons[0].path}" for name in OF_PYTHON if name in found and starts_another(found[name], pythons)]  # fmt: skip
    if len({(one.folder, one.venv) for one in pythons}) > 1 and pythons[0].real != pythons[-1].real:
        wrong.append("python and python3 are two interpreters")
    for name in ACTIVE:
        folder = host.env(name)
        seen += [Evidence(name, folder, f"env {name}")] if folder else []
        if folder and not any(one.path.startswith(folder.rstrip("/") + "/") for one in pythons):
            wrong.append(f"{name} names an environment that is not first on PATH")
    if not wrong:
        return ok(*seen)
    return warn(
        *seen,
        fix=Fix(
            "Name the interpreter in each install, whatever PATH says",
            ("uv pip install --python {python} PACKAGE", "{python} -m pip install PACKAGE"),
            Risk.NONE,
        ),
        reason="; ".join(wrong),
    )


def _told(one: OnPath) -> str:
    behind = one.interpreter or (one.real if one.real != one.path else "")
    kind = " (shim)" if "/shims/" in one.path else " (venv)" if one.venv and one.real else ""
    return one.path + kind + (f" -> {behind}" if behind and not kind else f" starts {one.interpreter}" if one.interpreter else "")  # fmt: skip


@check(
    "PY-010",
    layer=Layer.PY,
    title="Packages of the user's or the system's site do not get into the target",
    why="What lies in ~/.local comes before the packages of a plain or conda Python, and fills gaps of a leaky venv.",
    source=Source(
        "Python: the site module, user site and include-system-site-packages",
        "https://docs.python.org/3/library/site.html",
        "2026-11-30",
    ),
    needs_target=True,
)
def no_other_site(host: Probe) -> Answer:
    """Where both are installed, the user's copy wins unless the target is a venv; the runbook's children run without it."""
    minor = target_minor(host)
    if minor is None:
        return unknown("the target gave no version of Python that can be read")
    text = host.read_text(PYVENV)
    leaky = python_env.pyvenv(text).get("include-system-site-packages", "true").lower() == "true"
    base = host.env("PYTHONUSERBASE")
    asked = f"{base.rstrip('/')}/lib/python3*/site-packages/*.dist-info" if base else USER_SITE
    user = python_env.distributions(path for path in host.glob(asked) if f"/python{minor}/" in path)
    have = distributions(host)
    kept_out = host.env("PYTHONNOUSERSITE")
    kind = "a venv" if text is not None else "no venv"
    seen = [
        Evidence("the target is", kind, f"read {PYVENV}"),
        Evidence(f"packages in the user site for {minor}", len(user), f"glob {asked}"),
    ]
    if text is not None and not leaky:
        return ok(*seen, Evidence("takes in other sites", "no", f"read {PYVENV}"))
    if kept_out:
        seen.append(Evidence("PYTHONNOUSERSITE", kept_out, "env PYTHONNOUSERSITE"))
        user = {}
    other = sorted(f"{name} {user[name]}" + (f" over {have[name]}" if name in have else "") for name in user if user[name] != have.get(name))  # fmt: skip
    over = sorted(name for name in other if " over " in name)
    fix = Fix(
        "Keep the user site out of this environment's starts",
        ("export PYTHONNOUSERSITE=1",),
        Risk.RESTART,
        undo="unset PYTHONNOUSERSITE",
    )
    if over and text is None:
        return fail(
            *seen, Evidence("shadowed", some(over)), fix=fix, reason="the user's copies are imported first"
        )
    if text is not None:
        return warn(
            *seen,
            Evidence("takes in other sites", "yes", f"read {PYVENV}"),
            *([Evidence("from the user site", some(other))] if other else []),
            fix=Fix(
                "Make the venv again without --system-site-packages",
                ("uv venv --clear FOLDER",),
                Risk.REBUILD,
            ),
            reason="packages that the venv lacks are taken from the system and the user site",
        )
    if other:
        return warn(*seen, Evidence("from the user site", some(other)), fix=fix, reason="packages that nobody installed here can be imported")  # fmt: skip
    return ok(*seen)


@check(
    "PY-011",
    layer=Layer.PY,
    title="No path file in the target brings in a checkout or another folder",
    why="An editable install runs whatever lies in a working copy: each git pull changes what is served.",
    source=Source(
        "Python: the site module, path configuration files",
        "https://docs.python.org/3/library/site.html",
        "2026-11-30",
    ),
    needs_target=True,
)
def no_checkouts(host: Probe) -> Answer:
    """Folders that ``.pth`` files add, finders of editable installs, and ``.egg-link`` files; code of other ``.pth`` is named only."""
    files = host.glob(PTH)
    links = host.glob(EGG_LINK)
    have = distributions(host)
    if not have and not files:
        return unknown("neither a package nor a path file is there")
    brought, before, twice = [], [], []
    for path in files:
        name = path.rpartition("/")[2]
        folders, early = python_env.path_file(host.read_text(path))
        brought += [f"{name}: {folder}" for folder in folders]
        before += [name] if early else []
        if name.startswith("__editable__"):
            package = name.removeprefix("__editable__.").rpartition("-")[0].replace("-", "_")
            brought += [] if folders else [f"{name}: a finder"]
            twice += [package] if host.glob(f"{{site}}/{package}/__init__.py") else []
    brought += [link.rpartition("/")[2] for link in links]
    seen = [
        Evidence("path files", len(files), f"glob {PTH}"),
        Evidence("folders and checkouts brought in", len(brought), f"read {PTH}"),
        *([Evidence("change sys.path first", some(before), f"read {PTH}")] if before else []),
    ]
    if twice:
        return fail(
            *seen,
            Evidence("both checkout and wheel", some(twice), "glob {site}/PACKAGE/__init__.py"),
            fix=Fix(
                "Remove one of the two", (f"uv pip uninstall --python {{python}} {twice[0]}",), Risk.REBUILD
            ),
            reason="the folder in site-packages is found first: the checkout that was installed is not what runs",
        )
    if brought:
        return warn(
            *seen,
            Evidence("such as", some(brought)),
            fix=Fix(
                "Install a built wheel instead",
                ("uv build --wheel CHECKOUT", "uv pip install --python {python} WHEEL"),
                Risk.REBUILD,
            ),
            reason="what these hold is covered by no lock and no RECORD",
        )
    return ok(*seen)


CHECKS = (names_agree, no_other_site, no_checkouts)
