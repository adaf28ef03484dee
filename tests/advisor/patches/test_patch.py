"""Patches for many forms of source: what is edited, what stays the same byte for byte, and what is refused."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path
from typing import Any

import pytest

from advisor.patches.patch import patch
from advisor.patches.source import NoPatch, SourceFile
from advisor.rules.base import Intervention, Safety

WORKERS = {"num_workers": 2, "persistent_workers": True}
IMPORT = "from torch.utils.data import DataLoader\n"

# Name: the source, the line of the loader, its edited lines.
LOADERS: dict[str, tuple[str, int, str]] = {
    "no keyword": (IMPORT + "l = DataLoader(d)\n", 2, "l = DataLoader(d, num_workers=2, persistent_workers=True)\n"),
    "keyword": (
        IMPORT + "l = DataLoader(d, num_workers=0, shuffle=True)  # slow\n",
        2,
        "l = DataLoader(d, num_workers=2, shuffle=True, persistent_workers=True)  # slow\n",
    ),
    "keyword in parentheses": (
        IMPORT + "l = DataLoader(d, num_workers=(0))\n",
        2,
        "l = DataLoader(d, num_workers=(2), persistent_workers=True)\n",
    ),
    "by position": (
        IMPORT + "l = DataLoader(d, 8, True, None, None, 0)\n",
        2,
        "l = DataLoader(d, 8, True, None, None, 2, persistent_workers=True)\n",
    ),
    "trailing comma": (
        IMPORT + "l = DataLoader(d, 8,)\n",
        2,
        "l = DataLoader(d, 8, num_workers=2, persistent_workers=True)\n",
    ),
    "a line for each": (
        IMPORT + "l = DataLoader(\n    d,\n    batch_size=8,  # fits\n)\n",
        2,
        "    num_workers=2,\n    persistent_workers=True,\n",
    ),
    "a line for each, no last comma": (
        IMPORT + "l = DataLoader(\n    d,\n    batch_size=8  # fits\n    # really\n)\n",
        2,
        "    batch_size=8,  # fits\n    num_workers=2,\n    persistent_workers=True\n",
    ),
    "a line for each, nested": (
        IMPORT + "l = DataLoader(\n    d,\n    sampler=S(\n        d,\n    ),\n)\n",
        2,
        "    num_workers=2,\n    persistent_workers=True,\n",
    ),
    "hanging": (
        IMPORT + "l = DataLoader(d,\n               batch_size=8)\n",
        2,
        "               batch_size=8,\n               num_workers=2, persistent_workers=True)\n",
    ),
    "unpacked": (
        IMPORT + "l = DataLoader(d, **options)\n",
        2,
        "l = DataLoader(d, **dict(options, num_workers=2, persistent_workers=True))\n",
    ),
    "unpacked, one given": (
        IMPORT + "l = DataLoader(d, num_workers=n, **options)\n",
        2,
        "l = DataLoader(d, num_workers=2, **dict(options, persistent_workers=True))\n",
    ),
    "in a function": (
        "import torch\n\ndef make(d):\n\treturn torch.utils.data.DataLoader(d)\n",
        4,
        "\treturn torch.utils.data.DataLoader(d, num_workers=2, persistent_workers=True)\n",
    ),
    "tabs": (
        IMPORT + "if d:\n\tl = DataLoader(\n\t\td,\n\t)\n",
        3,
        "\t\tnum_workers=2,\n\t\tpersistent_workers=True,\n",
    ),
    "another name": (
        "from torch.utils.data import DataLoader as L\nl = L(d)\n",
        2,
        "l = L(d, num_workers=2, persistent_workers=True)\n",
    ),
    "a module's other name": (
        "import torch.utils.data as tud\nl = tud.DataLoader(d)\n",
        2,
        "l = tud.DataLoader(d, num_workers=2, persistent_workers=True)\n",
    ),
    "the second of two": (
        IMPORT + "a = DataLoader(d)\nb = DataLoader(e)\n",
        3,
        "b = DataLoader(e, num_workers=2, persistent_workers=True)\n",
    ),
    "two in a line": (
        IMPORT + "a, b = DataLoader(d), DataLoader(e)\n",
        2,
        "a, b = DataLoader(d, num_workers=2, persistent_workers=True), "
        "DataLoader(e, num_workers=2, persistent_workers=True)\n",
    ),
    "the line within the call": (
        IMPORT + "l = DataLoader(\n    d)\n",
        3,
        "    d,\n    num_workers=2, persistent_workers=True)\n",
    ),
    "CRLF": (
        (IMPORT + "l = DataLoader(\n    d,\n)\n").replace("\n", "\r\n"),
        2,
        "    num_workers=2,\r\n    persistent_workers=True,\r\n",
    ),
    "no end of line": (IMPORT + "l = DataLoader(d)", 2, "l = DataLoader(d, num_workers=2, persistent_workers=True)\n"),
    "letters of several bytes": (
        IMPORT + 'l = ("größer", DataLoader("größer"), "größer")\n',
        2,
        'l = ("größer", DataLoader("größer", num_workers=2, persistent_workers=True), "größer")\n',
    ),
    "a form feed, and an escape that Python dislikes": (
        IMPORT + '\f\nl = DataLoader("\\d")\n',
        3,
        'l = DataLoader("\\d", num_workers=2, persistent_workers=True)\n',
    ),
}

ENCODINGS = {"latin-1": "# -*- coding: latin-1 -*-\n", "utf-8-sig": "# with a mark\n", "euc-jp": "# coding: euc-jp\n"}

REFUSED: dict[str, tuple[str, int]] = {
    "positions unknown": (IMPORT + "l = DataLoader(*a)\n", 2),
    "several unpacked": (IMPORT + "l = DataLoader(d, **a, **b)\n", 2),
    "a generator": (IMPORT + "l = DataLoader(x for x in y)\n", 2),
    "another class": ("class DataLoader: ...\nl = DataLoader()\n", 2),
    "another library's": ("from torch_geometric.loader import DataLoader\nl = DataLoader(d)\n", 2),
    "a subclass": (IMPORT + "class Mine(DataLoader): ...\nl = Mine(d)\n", 3),
    "partial": (IMPORT + "import functools\nmake = functools.partial(DataLoader, d)\nl = make()\n", 4),
    "another line": (IMPORT + "l = DataLoader(d)\nx = 1\n", 3),
    "not Python": ("def (\n", 1),
    "old line ends": (IMPORT.replace("\n", "\r") + "l = DataLoader(d)\r", 2),
    "as advised": (IMPORT + "l = DataLoader(d, num_workers=2, persistent_workers=True)\n", 2),
}


def loader(file: Path, line: int, **settings: Any) -> Intervention:
    return Intervention(name="loader", settings={"file": str(file), "line": line, **settings}, safety=Safety.EXACT)


@pytest.mark.parametrize("form", LOADERS)
def test_a_loader_gets_its_arguments_and_nothing_else_changes(form: str, tmp_path: Path) -> None:
    source, line, expected = LOADERS[form]
    file = tmp_path / "train.py"
    file.write_bytes(source.encode())
    diff = patch(loader(file, line, **WORKERS), ("train.py",), str(tmp_path)).diff
    added = [each[1:] for each in diff.split(b"\n") if each.startswith(b"+") and not each.startswith(b"+++")]
    assert (b"\n".join(added) + b"\n").endswith(expected.encode())
    removed = [each for each in diff.split(b"\n") if each.startswith(b"-") and not each.startswith(b"---")]
    assert len(removed) <= 1


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_file_encoding_is_preserved(encoding: str, tmp_path: Path) -> None:
    text = {"latin-1": "größer", "utf-8-sig": "größer", "euc-jp": "日本"}[encoding]
    source = f'{ENCODINGS[encoding]}# {text}\n{IMPORT}l = ("{text}", DataLoader(d))\n'.encode(encoding)
    file = tmp_path / "train.py"
    file.write_bytes(source)
    diff = patch(loader(file, 4, num_workers=2), ("train.py",), str(tmp_path)).diff
    assert f'+l = ("{text}", DataLoader(d, num_workers=2))\n'.encode(encoding.removesuffix("-sig")) in diff


@pytest.mark.parametrize("form", REFUSED)
def test_uncertain_loader_patch_is_refused(form: str, tmp_path: Path) -> None:
    source, line = REFUSED[form]
    file = tmp_path / "train.py"
    file.write_bytes(source.encode())
    with pytest.raises(NoPatch):
        patch(loader(file, line, **WORKERS), ("train.py",), str(tmp_path))


def test_zero_workers_resets_arguments_that_need_workers(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(IMPORT + "l = DataLoader(d, num_workers=8, prefetch_factor=4, persistent_workers=True)\n")
    diff = patch(loader(file, 2, num_workers=0, prefetch_factor=2), ("train.py",), str(tmp_path)).diff
    assert b"+l = DataLoader(d, num_workers=0, prefetch_factor=None, persistent_workers=False)\n" in diff


# Name: the intervention's settings, the script, the lines that are added.
SCRIPTS: dict[str, tuple[str, dict[str, object], str, list[str]]] = {
    "fused": (
        "fused_optimizer",
        {"name": "AdamW"},
        "import torch\no = torch.optim.AdamW(p, lr=1)\n",
        ["o = torch.optim.AdamW(p, lr=1, fused=True)"],
    ),
    "fused, not foreach": (
        "fused_optimizer",
        {"name": "SGD"},
        "from torch.optim import SGD\no = SGD(p, foreach=True)\n",
        ["o = SGD(p, foreach=False, fused=True)"],
    ),
    "TF32": (
        "flags",
        {"matmul_precision": "high", "threads": None},
        "import os\nimport torch  # here\nfrom torch import nn\nmodel = nn.Linear(1, 1)\n",
        ["", "torch.set_float32_matmul_precision('high')"],
    ),
    "threads, set already": (
        "flags",
        {"threads": 4},
        "import torch\ntorch.set_num_threads(1)  # why\n",
        ["torch.set_num_threads(4)  # why"],
    ),
    "cuDNN": (
        "flags",
        {"cudnn_benchmark": True},
        "import torch as t\n",
        ["", "t.backends.cudnn.benchmark = True"],
    ),
    "anomaly detection": (
        "flags",
        {"anomaly": False},
        "import torch\ntorch.autograd.set_detect_anomaly(True)\nwith torch.autograd.detect_anomaly():\n    f()\n",
        ["torch.autograd.set_detect_anomaly(False)", "with torch.autograd.set_detect_anomaly(False):"],
    ),
}

SCRIPTS_REFUSED: dict[str, tuple[str, dict[str, object], str]] = {
    "two optimizers": (
        "fused_optimizer",
        {"name": "Adam"},
        "from torch import optim\na, b = optim.Adam(p), optim.Adam(q)\n",
    ),
    "an optimizer of its own": ("fused_optimizer", {"name": "Adam"}, "class Adam: ...\na = Adam(p)\n"),
    "an environment's": ("environment", {"variables": {"OMP_NUM_THREADS": "4"}}, "import torch\n"),
    "a model's": ("compile", {"mode": None}, "import torch\n"),
    "set by the script": ("flags", {"cudnn_benchmark": True}, "import torch\ntorch.backends.cudnn.benchmark = x\n"),
    "no torch at the top": ("flags", {"threads": 2}, "from torch import nn\n"),
    "code in the line of the import": ("flags", {"threads": 2}, "import torch; f()\n"),
    "anomaly detection by name": (
        "flags",
        {"anomaly": False},
        "from torch.autograd import detect_anomaly\nwith detect_anomaly(): f()\n",
    ),
    "copies": ("loader", {"file": "train.py", "line": 2, "non_blocking": True}, IMPORT + "l = DataLoader(d)\n"),
}


@pytest.mark.parametrize("form", SCRIPTS)
def test_a_script_gets_the_setting(form: str, tmp_path: Path) -> None:
    name, settings, source, expected = SCRIPTS[form]
    (tmp_path / "train.py").write_text(source)
    change = Intervention(name=name, settings=settings, safety=Safety.NUMERICS)
    diff = patch(change, ("torchrun", "train.py"), str(tmp_path)).diff.decode()
    lines = [line for line in diff.splitlines() if not line.startswith(("+++", "---"))]
    assert [line[1:] for line in lines if line.startswith("+")] == expected


@pytest.mark.parametrize("form", SCRIPTS_REFUSED)
def test_script_without_unambiguous_line_is_not_patched(form: str, tmp_path: Path) -> None:
    name, settings, source = SCRIPTS_REFUSED[form]
    (tmp_path / "train.py").write_text(source)
    with pytest.raises(NoPatch):
        patch(Intervention(name=name, settings=settings, safety=Safety.EXACT), ("train.py",), str(tmp_path))


def test_only_a_python_file_is_read(tmp_path: Path) -> None:
    secret = tmp_path / "id_rsa"
    secret.write_text(IMPORT + "l = DataLoader(d)\n")
    (tmp_path / "link.py").symlink_to(secret)
    for file in (secret, tmp_path / "link.py", tmp_path / "gone.py", Path("/dev/zero.py")):
        with pytest.raises(NoPatch):
            patch(loader(file, 2, **WORKERS), ("train.py",), str(tmp_path))


@pytest.mark.process
def test_git_applies_each_of_them(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """All files are in one repository and one patch, with names that git quotes; the result is still valid Python."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    folder, diffs = tmp_path / "a folder" / 'od"d', b""
    folder.mkdir(parents=True)
    for number, (source, line, _) in enumerate(LOADERS.values()):
        file = folder / f"tr ain{number}.py"
        file.write_bytes(source.encode())
        made = patch(loader(file, line, **WORKERS), (file.name,), str(folder))
        assert made.folder == tmp_path.resolve()
        diffs += made.diff
    subprocess.run(["git", "-c", "core.autocrlf=false", "apply", "-"], input=diffs, cwd=tmp_path, check=True)
    for number, form in enumerate(LOADERS):
        with subtests.test(form):
            after = SourceFile((folder / f"tr ain{number}.py").read_bytes())
            assert "persistent_workers" in ast.dump(after.tree)
