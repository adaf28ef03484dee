"""Put the packages of this checkout on the path, installed or not. No module here may have the name of a module in the
standard library: torch would import ours."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

sys.path.insert(1, str(ROOT))

COMMAND = (
    sys.executable,
    "-c",
    "import sys; sys.path[0] = sys.argv.pop(1); from advisor.cli import main; raise SystemExit(main())",
    str(ROOT),
)
"""Command line of this checkout's profile-train."""
