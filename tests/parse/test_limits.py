"""Control groups, mounts and df with several paths: literal texts of real machines in, facts out."""

import pytest

from runbook.parse import cgroup, mounts, proc
from runbook.parse.cgroup import Groups
from runbook.parse.mounts import Mount, Room

# A machine with one hierarchy a controller, and version 2 mounted beside them without controllers.
HYBRID = (
    "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n"
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:3 - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
)
OWN = "9:name=systemd:/\n4:memory:/jobs/a:b\n1:cpu,cpuacct:/\n0::/\n"


@pytest.mark.parametrize(
    ("text", "number"),
    [("max\n", None), ("2147483648\n", 2_147_483_648), ("0", 0), ("9223372036854771712\n", None), ("", None), (None, None), ("-1", None)],
)  # fmt: skip
def test_a_limit(text: str | None, number: int | None) -> None:
    assert cgroup.number(text) == number


@pytest.mark.parametrize(
    ("text", "quota"),
    [("max 100000\n", None), ("200000 100000\n", 2.0), ("50000 100000", 0.5), ("0 100000", 0.0), ("1 0", None), ("-1 \n", None), ("100000", None), (None, None)],
)  # fmt: skip
def test_a_quota(text: str | None, quota: float | None) -> None:
    assert cgroup.quota(text) == quota


def test_paths_of_the_groups() -> None:
    assert cgroup.paths(OWN) == {
        "name=systemd": "/",
        "memory": "/jobs/a:b",
        "cpu": "/",
        "cpuacct": "/",
        "": "/",
    }
    assert cgroup.paths("x:memory:/a\n4:memory\n4:memory:a\n") == {}


def groups(own: str, table: str, controller: str) -> Groups:
    return cgroup.groups(own, mounts.mounts(table), controller)


def test_groups_up_to_the_root() -> None:
    memory = "/sys/fs/cgroup/memory"
    assert groups(OWN, HYBRID, "memory") == Groups(1, (f"{memory}/jobs/a:b", f"{memory}/jobs", memory))
    assert groups(OWN, HYBRID, "cpu") == Groups(1, ("/sys/fs/cgroup/cpu,cpuacct",))
    # No hierarchy of its own: version 2 answers.
    assert groups(OWN, HYBRID, "pids") == Groups(2, ("/sys/fs/cgroup/unified",))
    assert groups("0::/a/b\n", HYBRID, "memory") == Groups(
        2, tuple(f"/sys/fs/cgroup/unified{end}" for end in ("/a/b", "/a", ""))
    )
    assert groups(OWN, "", "memory") == Groups(0)
    assert groups("", HYBRID, "memory") == Groups(0)


@pytest.mark.parametrize(
    ("path", "folders"),
    [
        ("/docker/4f1e", ("/sys/fs/cgroup",)),
        ("/docker/4f1e/child", ("/sys/fs/cgroup/child", "/sys/fs/cgroup")),
        ("/docker/4f1e5", ("/sys/fs/cgroup",)),
        ("/elsewhere", ("/sys/fs/cgroup",)),
        ("/docker/4f1e/../x", ("/sys/fs/cgroup",)),
        ("/docker/4f1e" + "/a" * 40, ("/sys/fs/cgroup",)),
    ],
)
def test_a_container_sees_its_group_as_the_root(path: str, folders: tuple[str, ...]) -> None:
    table = "38 31 0:29 /docker/4f1e /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
    assert groups(f"0::{path}\n", table, "memory") == Groups(2, folders)


def test_mounts() -> None:
    line = "44 27 0:40 /sub /my\\040disk rw,nosuid,noexec shared:7 master:1 - xfs /dev/vd\\134b rw,attr2\n"
    (one,) = mounts.mounts(line)
    options = frozenset(("rw", "nosuid", "noexec", "attr2"))
    assert one == Mount("/sub", "/my disk", "xfs", "/dev/vd\\b", options)
    assert (
        mounts.mounts(
            "44 27 0:40 / /x rw xfs /dev/vdb rw\n44 27 0:40 / - xfs a b\n44 27 0:40 / /x rw - xfs a\n"
        )
        == ()
    )
    table = mounts.mounts(
        "1 0 0:1 / / rw - rootfs a rw\n2 1 0:2 / / rw - ext4 b rw\n3 2 0:3 / /x rw - xfs c rw\n"
    )
    assert [getattr(mounts.at(table, place), "source", None) for place in ("/", "/x", "/y")] == [
        "b",
        "c",
        None,
    ]


def test_rooms() -> None:
    head = "   Avail    Inodes    IFree Type  Mounted on\n"
    text = f"{head}52606940 16777216 16138709 ext4  /\n24683656        0        0 btrfs /my disk\n   -2048        -        - nfs4  /net\n"
    assert mounts.rooms(text) == (
        Room(51_373, 16_777_216, 16_138_709, "ext4", "/"),
        Room(24_105, None, None, "btrfs", "/my disk"),
        Room(0, None, None, "nfs4", "/net"),
    )
    # One row that cannot be read, and none can be told from the others.
    assert mounts.rooms(f"{text}- - - proc /proc\n") == ()
    assert mounts.rooms(head) == ()


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0-15", 16),
        ("3", 1),
        ("0-1,8,64-127", 67),
        ("3-1", None),
        ("", None),
        (None, None),
        ("0-", None),
        ("a", None),
    ],
)
def test_a_list_of_cores(text: str | None, count: int | None) -> None:
    assert proc.listed(text) == count


def test_fields_of_a_process() -> None:
    text = "Name:\tpython\nUid:\t1000\t1000\t1000\t1000\nCpus_allowed_list:\t0-1\nEmpty:\t\nNext:\tx\n"
    assert proc.status(text, "Uid") == "1000\t1000\t1000\t1000"
    assert (proc.status(text, "Empty"), proc.status(text, "id"), proc.status(None, "Uid")) == (
        None,
        None,
        None,
    )


def test_os_release() -> None:
    text = "PRETTY_NAME=\"Ubuntu 24.04.3 LTS\"\nID=ubuntu\n# ID=x\nNAME='Ubuntu'\n"
    assert proc.os_release(text) == {"PRETTY_NAME": "Ubuntu 24.04.3 LTS", "ID": "ubuntu", "NAME": "Ubuntu"}
    assert proc.os_release(None) == {}


def test_modules() -> None:
    text = "nvidia_uvm 1830912 - - Live 0x0 (O)\nnvidia 14299136 2 nvidia_uvm, Live 0x0 (O)\n"
    assert proc.modules(text) == frozenset(("nvidia_uvm", "nvidia"))
    assert (proc.modules(None), proc.modules("")) == (None, frozenset())


def test_who_holds_a_card() -> None:
    columns = "\t0" * 15
    text = f"0030\t10de2335{columns}\tnvidia\n0031\t10de22ba{columns}\tsnd_hda_intel\n0038\t10de2335{columns}\t\n0040\t10de2335\t0\n0048\t1af41042{columns}\tvirtio-pci\n"
    assert proc.pci_drivers(text) == ("nvidia", "", "")
    assert (proc.pci_drivers(None), proc.pci_drivers("")) == (None, ())
