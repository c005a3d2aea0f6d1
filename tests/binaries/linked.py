"""Libraries made by the compiler: a site-packages folder with a torch of some functions, and extensions good and bad."""

import os
import subprocess
import sys
from pathlib import Path

TORCH = "int c10_add(int a) { return a + 1; }\nint c10_data = 7;\n"
PRIVATE = "int torch_private(void) { return 3; }\n"
EVERYWHERE = "int shared_by_all(void) { return 5; }\n"


def build(path: Path, code: str, *words: str) -> Path:
    """Compile C into a library; the words go to the linker after it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    argv = [
        "gcc",
        "-w",
        "-shared",
        "-fPIC",
        "-x",
        "c",
        "-",
        "-o",
        str(path),
        "-x",
        "none",
        f"-Wl,-soname,{path.name}",
        *words,
    ]
    subprocess.run(argv, input=code, text=True, check=True, timeout=60)
    return path


def base(prefix: Path) -> Path:
    """A site-packages folder with a torch, and the interpreter of this test as its own."""
    site = prefix / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / site.parent.name).symlink_to(os.path.realpath(sys.executable))
    lib = site / "torch/lib"
    build(lib / "libc10.so", TORCH)
    build(lib / "libtorch_all.so", EVERYWHERE)
    build(
        lib / "libtorch_global_deps.so",
        "",
        "-Wl,--no-as-needed",
        str(lib / "libtorch_all.so"),
        "-Wl,-rpath,$ORIGIN",
    )
    build(
        lib / "libtorch_python.so",
        PRIVATE,
        "-Wl,--no-as-needed",
        str(lib / "libc10.so"),
        "-Wl,-rpath,$ORIGIN",
    )
    build(
        site / "torch/_C.made.so",
        "",
        "-Wl,--no-as-needed",
        str(lib / "libtorch_python.so"),
        "-Wl,-rpath,$ORIGIN/lib",
    )
    (site / "torch/version.py").write_text("__version__ = '2.10.0'\ncuda = None\n", encoding="utf-8")
    (site / "torch/__init__.py").write_text("", encoding="utf-8")
    return site


def c10(site: Path) -> tuple[str, str]:
    return "-Wl,--no-as-needed", str(site / "torch/lib/libc10.so")


def plain(site: Path) -> Path:
    return build(
        site / "ext/_C.so", "extern int c10_add(int); int go(void) { return c10_add(1); }", *c10(site)
    )


def lacks_symbol(site: Path) -> Path:
    code = "extern int c10_gone(int), also_gone(void); int go(void) { return c10_gone(1) + also_gone(); }"
    return build(site / "ext/_C.so", code, *c10(site))


def data_before_calls(site: Path) -> Path:
    # The call stands first in the text and in the symbol table; the loader resolves the pointer first.
    code = "extern int a_call(void), z_data; int go(void) { return a_call(); } int *held = &z_data;"
    return build(site / "ext/_C.so", code, *c10(site))


def weak_may_lack(site: Path) -> Path:
    code = "extern int maybe(void) __attribute__((weak)); extern int c10_add(int); int go(void) { return maybe ? maybe() : c10_add(1); }"
    return build(site / "ext/_C.so", code, *c10(site))


def not_what_others_have_loaded(site: Path) -> Path:
    """A symbol of libtorch_python, which is loaded, but which this file does not say it needs."""
    return build(
        site / "ext/_C.so",
        "extern int torch_private(void); int go(void) { return torch_private(); }",
        *c10(site),
    )


def what_is_global(site: Path) -> Path:
    return build(
        site / "ext/_C.so",
        "extern int shared_by_all(void); int go(void) { return shared_by_all(); }",
        *c10(site),
    )


def lacks_library(site: Path) -> Path:
    other = build(site / "ext/libgone.so.3", "int gone(void) { return 1; }")
    made = build(
        site / "ext/_C.so", "extern int gone(void); int go(void) { return gone(); }", *c10(site), str(other)
    )
    other.unlink()
    return made


def lacks_library_below(site: Path) -> Path:
    deep = build(site / "ext/libdeep.so", "int deep(void) { return 1; }")
    middle = build(
        site / "ext/libtorch_middle.so",
        "extern int deep(void); int middle(void) { return deep(); }",
        *c10(site),
        str(deep),
    )
    made = build(
        site / "ext/_C.so",
        "extern int middle(void); int go(void) { return middle(); }",
        *c10(site),
        str(middle),
        "-Wl,-rpath,$ORIGIN",
    )
    deep.unlink()
    return made


def runpath_is_not_inherited(site: Path) -> Path:
    deep = build(site / "ext/other/libdeep.so", "int deep(void) { return 1; }")
    middle = build(
        site / "ext/libmiddle.so", "extern int deep(void); int middle(void) { return deep(); }", str(deep)
    )
    code = "extern int middle(void); int go(void) { return middle(); }"
    return build(
        site / "ext/_C.so",
        code,
        *c10(site),
        str(middle),
        "-Wl,--enable-new-dtags",
        "-Wl,-rpath,$ORIGIN:$ORIGIN/other",
    )


def rpath_is_inherited(site: Path) -> Path:
    deep = build(site / "ext/other/libdeep.so", "int deep(void) { return 1; }")
    middle = build(
        site / "ext/libmiddle.so", "extern int deep(void); int middle(void) { return deep(); }", str(deep)
    )
    code = "extern int middle(void); int go(void) { return middle(); }"
    return build(
        site / "ext/_C.so",
        code,
        *c10(site),
        str(middle),
        "-Wl,--disable-new-dtags",
        "-Wl,-rpath,${ORIGIN}:$ORIGIN/other",
    )


def lacks_version(site: Path) -> Path:
    script = site / "versions"
    lib = site / "ext/libruntime.so"
    script.write_text("OLD_1 { global: old; };\nNEW_2 { global: fresh; };\n", encoding="utf-8")
    build(lib, "int old(void) { return 1; } int fresh(void) { return 2; }", f"-Wl,--version-script={script}")
    made = build(
        site / "ext/_C.so",
        "extern int fresh(void); int go(void) { return fresh(); }",
        *c10(site),
        str(lib),
        "-Wl,-rpath,$ORIGIN",
    )
    script.write_text("OLD_1 { global: old; };\n", encoding="utf-8")
    build(lib, "int old(void) { return 1; } int fresh(void) { return 2; }", f"-Wl,--version-script={script}")
    return made


def versioned_symbol_moved(site: Path) -> Path:
    """The version is still there, the symbol of that version is not: __nvJitLinkCreate of another CUDA looks like this."""
    script = site / "versions"
    lib = site / "ext/libruntime.so"
    script.write_text("V_1 { global: kept; moved; };\n", encoding="utf-8")
    build(lib, "int kept(void) { return 1; } int moved(void) { return 2; }", f"-Wl,--version-script={script}")
    made = build(
        site / "ext/_C.so",
        "extern int moved(void); int go(void) { return moved(); }",
        *c10(site),
        str(lib),
        "-Wl,-rpath,$ORIGIN",
    )
    script.write_text("V_1 { global: kept; local: *; };\n", encoding="utf-8")
    build(lib, "int kept(void) { return 1; }", f"-Wl,--version-script={script}")
    return made


def old_hash_table_only(site: Path) -> Path:
    lib = build(
        site / "ext/libold.so",
        "int old_one(void) { return 1; } int old_two(void) { return 2; }",
        "-Wl,--hash-style=sysv",
    )
    code = "extern int old_one(void), old_three(void); int go(void) { return old_one() + old_three(); }"
    return build(
        site / "ext/_C.so", code, *c10(site), str(lib), "-Wl,-rpath,$ORIGIN", "-Wl,--hash-style=sysv"
    )


def loaded_by_its_package(site: Path) -> Path:
    lib = build(site / "ext/libown.so", "int own(void) { return 1; }")
    return build(
        site / "ext/_C.so", "extern int own(void); int go(void) { return own(); }", *c10(site), str(lib)
    )


def python_of_the_interpreter(site: Path) -> Path:
    code = "extern void *PyLong_FromLong(long); void *go(void) { return PyLong_FromLong(1); }"
    return build(site / "ext/_C.so", code, *c10(site))


def another_processor_is_passed_over(site: Path) -> Path:
    """A file of the same name for another processor stands before the right one on the path."""
    wrong = build(site / "ext/wrong/libown.so", "")
    right = build(site / "ext/right/libown.so", "int own(void) { return 1; }")
    data = bytearray(wrong.read_bytes())
    data[18:20] = (183).to_bytes(2, "little")
    wrong.write_bytes(data)
    code = "extern int own(void); int go(void) { return own(); }"
    return build(site / "ext/_C.so", code, *c10(site), str(right), "-Wl,-rpath,$ORIGIN/wrong:$ORIGIN/right")


PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **paths) {
    for (int at = 1; at < count; at++)
        if (!dlopen(paths[at], RTLD_NOW | (at == 1 ? RTLD_GLOBAL : 0))) { puts(dlerror()); return 1; }
    return 0;
}
"""


def program(path: Path, *words: str) -> Path:
    """An interpreter of sorts: it loads the libraries it is given, the first for all to see."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    argv = ["gcc", "-x", "c", "-", "-o", str(path), "-x", "none", *words]
    subprocess.run(argv, input=PROGRAM, text=True, check=True, timeout=60)
    return path
