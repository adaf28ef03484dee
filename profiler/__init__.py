"""Record a PyTorch training run.

from profiler import profile, step, region

with profile(out="run"):
    train()
"""

from typing import Any

from profiler.version import __version__

__all__ = ["__version__", "profile", "region", "step"]


def load_ipython_extension(shell: Any) -> None:
    """Register the notebook magics; IPython calls this for `%load_ext profiler`."""
    from profiler.integrations.jupyter import ProfileTrainMagics

    shell.register_magics(ProfileTrainMagics)


def __getattr__(name: str) -> object:
    """Load a public name on first use: the command line needs none of them."""
    if name in ("profile", "region", "step"):
        from profiler import session

        return getattr(session, name)
    raise AttributeError(f"module 'profiler' has no attribute {name!r}")
