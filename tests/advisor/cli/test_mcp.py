"""The command that serves coding agents."""

import sys

from advisor.cli import main


def test_without_the_package_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    monkeypatch.delitem(sys.modules, "advisor.mcp.server", raising=False)
    assert main(["mcp"]) == 1
    assert "pip install 'profile-train[mcp]'" in capsys.readouterr().err
