"""Records a PyTorch training run.

from profiler import profile, step, region

with profile(out="run"):
    train()
"""

from typing import Any

from profiler.version import __version__

__all__ = ["__version__", "profile", "region", "step"]


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext profiler`."""
    from profiler.integrations.jupyter import ProfileTrainMagics

    shell.register_magics(ProfileTrainMagics)


def __getattr__(name: str) -> object:
    """Only what is asked for is loaded: the command line needs none of it."""
    if name in ("profile", "region", "step"):
        from profiler import session

        return getattr(session, name)
    raise AttributeError(f"module 'profiler' has no attribute {name!r}")
