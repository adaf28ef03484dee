"""Serve the commands to coding agents."""

from pathlib import Path

import click

from advisor.cli.command import Command
from profiler.errors import ProfilerError

EPILOG = """
\b
Examples:
  profile-train mcp --port 8765  # prints its address
  claude mcp add profile-train -- profile-train mcp --root .
"""


@click.command(
    cls=Command,
    short_help="Serve the commands to coding agents (MCP).",
    help="Serve the commands as tools of the Model Context Protocol: over stdio, or over HTTP on 127.0.0.1 (--port). "
    "The server runs the programs that its clients request, with your permissions. It reads and writes only runs "
    "below --root; the programs that it runs are not restricted. Needs the extra `mcp`.",
    epilog=EPILOG,
)
@click.option(
    "--root",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=Path(),
    help="Folder of all runs; programs start there.  [the current one]",
)
@click.option("--port", type=click.IntRange(1, 65535), help="Serve HTTP on this port of 127.0.0.1.  [stdio]")
def mcp(root: Path, port: int | None) -> None:
    """Serve until the client, or Ctrl-C, ends it."""
    try:
        from advisor.mcp.server import serve
    except ImportError as error:
        raise ProfilerError(
            "`profile-train mcp` needs the package `mcp`, version 2 or newer.", "pip install 'profile-train[mcp]'"
        ) from error
    serve(root, port)
