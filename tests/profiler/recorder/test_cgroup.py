import pytest

from profiler.recorder.cgroup import Cgroup

V2 = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw"
V1_CPU = "32 31 0:29 {top} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct"
V1_MEMORY = "35 31 0:32 {top} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"
NO_LIMIT = 9223372036854771712


@pytest.fixture
def root(tmp_path):
    """Return a function that makes a root folder from the lines of /proc/self/cgroup and mountinfo, and the files below
    /sys/fs/cgroup."""

    def make(membership, mounts, **files):
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text("\n".join(membership) + "\n")
        (tmp_path / "proc/self/mountinfo").write_text("\n".join(["1 1 8:1 / / rw - ext4 /dev/sda rw", *mounts]) + "\n")
        for name, content in files.items():
            file = tmp_path / "sys/fs/cgroup" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{content}\n")
        return tmp_path

    return make


def test_no_limits_without_control_groups(tmp_path):
    cgroup = Cgroup.own(tmp_path)

    assert (cgroup.cpu_quota(), cgroup.memory_limit(), cgroup.memory_available()) == (None, None, None)


def test_version_2_limits(root):
    files = {
        "job/cpu.max": "150000 100000",
        "job/memory.max": 1000,
        "job/memory.current": 700,
        "job/memory.stat": "anon 400\ninactive_file 200\nactive_file 100",
    }
    cgroup = Cgroup.own(root(["0::/job"], [V2], **files))

    assert cgroup.cpu_quota() == 1.5
    assert cgroup.memory_limit() == 1000
    assert cgroup.memory_available() == 500


def test_version_2_says_max_for_no_limit(root):
    cgroup = Cgroup.own(root(["0::/job"], [V2], **{"job/cpu.max": "max 100000", "job/memory.max": "max"}))

    assert (cgroup.cpu_quota(), cgroup.memory_limit(), cgroup.memory_available()) == (None, None, None)


def test_tightest_enclosing_group_applies(root):
    files = {
        "pod/cpu.max": "200000 100000",
        "pod/job/cpu.max": "800000 100000",
        "pod/memory.max": 2000,
        "pod/memory.current": 1950,
        "pod/job/memory.max": 1000,
        "pod/job/memory.current": 100,
    }
    cgroup = Cgroup.own(root(["0::/pod/job"], [V2], **files))

    assert (cgroup.cpu_quota(), cgroup.memory_limit(), cgroup.memory_available()) == (2.0, 1000, 50)


@pytest.mark.parametrize(("top", "folder"), [("/", "job/"), ("/job", "")], ids=["machine", "container"])
def test_version_1_limits(root, top, folder):
    files = {
        f"cpu,cpuacct/{folder}cpu.cfs_quota_us": 50000,
        f"cpu,cpuacct/{folder}cpu.cfs_period_us": 100000,
        f"memory/{folder}memory.limit_in_bytes": 4000,
        f"memory/{folder}memory.usage_in_bytes": 3000,
        f"memory/{folder}memory.stat": "inactive_file 1\ntotal_inactive_file 500",
    }
    mounts = [V1_CPU.format(top=top), V1_MEMORY.format(top=top)]
    cgroup = Cgroup.own(root(["5:memory:/job", "3:cpu,cpuacct:/job", "0::/"], mounts, **files))

    assert (cgroup.cpu_quota(), cgroup.memory_limit(), cgroup.memory_available()) == (0.5, 4000, 1500)


def test_version_1_says_minus_one_and_a_huge_number_for_no_limit(root):
    files = {
        "cpu,cpuacct/cpu.cfs_quota_us": -1,
        "cpu,cpuacct/cpu.cfs_period_us": 100000,
        "memory/memory.limit_in_bytes": NO_LIMIT,
        "memory/memory.usage_in_bytes": 3000,
    }
    mounts = [V1_CPU.format(top="/"), V1_MEMORY.format(top="/")]
    cgroup = Cgroup.own(root(["5:memory:/", "3:cpu,cpuacct:/"], mounts, **files))

    assert (cgroup.cpu_quota(), cgroup.memory_limit(), cgroup.memory_available()) == (None, None, None)


def test_group_outside_the_mount_falls_back_to_its_root(root):
    cgroup = Cgroup.own(root(["0::/../other"], [V2], **{"cpu.max": "100000 100000"}))

    assert cgroup.cpu_quota() == 1.0
