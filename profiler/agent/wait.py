"""The only agent code that runs before the program imports torch.

A process that never imports it pays for nothing more.
"""

from .importing import when_imported


def wait_for_torch(settings: str) -> None:
    """Install the agent once the program has imported torch; `settings` is the launcher's JSON."""

    def torch_is_there() -> None:
        try:
            import json

            from . import start

            start.begin_or_leave(json.loads(settings))
        except Exception:  # `import torch` is the program's: it succeeds, with us or without
            return

    when_imported("torch", torch_is_there)
