"""Accept profile-train on a real GPU, in nine minutes and without a network.

    PYTHONPATH=. python3 benchmarks/gpu/accept.py --out DIR [--wheels DIR]
    PYTHONPATH=. python3 benchmarks/gpu/accept.py --dry             on the CUDA stand-in: shows that the checks work
    PYTHONPATH=. python3 benchmarks/gpu/accept.py --only windows    one item; may be given again

The stand-in is the folder that tests/support/fake_cuda/build.py prints, in LD_LIBRARY_PATH. A real run needs one NVIDIA
GPU, a Python with a CUDA torch, and the packages of pyproject.toml; those that the machine lacks are installed from the
wheels in --wheels into a folder of their own. Each item runs programs of benchmarks/gpu/programs plain and recorded,
and compares the recording with what the program itself measured. DIR gets four files and nothing else, at most 16 MiB:
table.md, accept.json, runs.tar.gz (recordings) and trace.json.gz (a raw torch.profiler trace). They are written again
after each item: a run that is cut off leaves what it had measured. The exit status is 1 if a bar was missed, or if a
signal ended the run.
"""

from __future__ import annotations

import argparse
import contextlib
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import checks
import table
from acceptance import Bench, Failed
from table import Row

MINUTES = 9.0
DRY_MINUTES = 60.0
"""Longer: the stand-in runs on few cores where time does not matter, to show that each check works."""
PATIENCE, DRY_PATIENCE = 1.5, 20.0
"""Multiple of its normal seconds that an item may take."""


SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Stopped(BaseException):
    """A signal that ends the run."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("acceptance"), help="default: acceptance")
    parser.add_argument("--wheels", type=Path, help="folder of wheels that this machine's Python lacks")
    parser.add_argument("--minutes", type=float, help="default: 9; with --dry 60")
    parser.add_argument("--only", action="append", choices=[item.name for item in checks.ITEMS], metavar="ITEM")
    parser.add_argument(
        "--dry", action="store_true", help="on the stand-in: short runs; the figures are not of a real GPU"
    )
    args = parser.parse_args()

    began = time.monotonic()
    args.out.mkdir(parents=True, exist_ok=True)
    for number in SIGNALS:
        signal.signal(number, _stop)
    with tempfile.TemporaryDirectory() as scratch:
        site = Path(scratch) / "site" if args.wheels else None
        rows: list[Row] = []
        stopped = True
        with contextlib.suppress(Stopped):  # the files are written, even between two items
            if site:
                _install(args.wheels, site)
            _accept(args, began, Path(scratch) / "runs", site, rows)
            stopped = False
    print(table.as_text(rows))
    missed = [row for row in rows if row.passed is False]
    print(f"{len(missed)} of {sum(row.passed is not None for row in rows)} bars missed; files in {args.out}")
    return bool(missed) or stopped


def _accept(args: argparse.Namespace, began: float, runs: Path, site: Path | None, rows: list[Row]) -> None:
    """Run the items, and write the files after each one; append to `rows` as they are measured."""
    end = began + 60 * (args.minutes or (DRY_MINUTES if args.dry else MINUTES))
    patience = DRY_PATIENCE if args.dry else PATIENCE
    items = [item for item in checks.ITEMS if not args.only or item.name in args.only]
    about = {"machine": platform.node(), "python": platform.python_version(), "dry": args.dry}
    for item in items:
        left = end - time.monotonic()
        print(f"[{time.monotonic() - began:4.0f} s] {item.name}", file=sys.stderr, flush=True)
        deadline = min(end, time.monotonic() + patience * item.seconds)
        bench = Bench(args.out, runs, deadline, dry=args.dry, site=site)
        try:
            if left < item.seconds / 3:
                raise Failed("no time left")
            for row in item.check(bench):  # keep what an item measured before it failed
                rows.append(row)
        except Failed as problem:
            rows.append(Row(item.name, f"could not be measured: {problem}", "measured", False))
        except Stopped:
            rows.append(Row(item.name, "stopped by a signal"))
            raise
        except Exception as problem:  # noqa: BLE001 - the other items are still worth having
            rows.append(Row(item.name, f"the check failed: {problem!r}", "measured", False))
        finally:
            bench.stop()
            about["seconds"] = round(time.monotonic() - began, 1)
            table.write(args.out, rows, about)
            table.pack(args.out, runs)


def _install(wheels: Path, site: Path) -> None:
    command = ["pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile", "--target", str(site)]
    found = sorted(map(str, wheels.glob("*.whl")))
    subprocess.run([sys.executable, "-m", *command, *found], check=True)
    sys.path.insert(1, str(site))


def _stop(*_: object) -> None:
    for number in SIGNALS:  # the files are being written: ignore further signals
        signal.signal(number, signal.SIG_IGN)
    raise Stopped


if __name__ == "__main__":
    raise SystemExit(main())
