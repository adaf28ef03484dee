"""Attached to a running program, the hooks stay only as long as the command that put them in."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


class Lease:
    """Looked at seldom: at ticks, and in workers at each batch."""

    def __init__(self, settings: dict[str, Any], end: Callable[[], None] = lambda: None) -> None:
        """`end` is how they go."""
        self.end = end
        self._recorder = int(settings["recorder"])
        self._folder: str = settings["rings"]

    @property
    def is_over(self) -> bool:
        """The recorder is gone, or has taken its rings away."""
        try:
            os.kill(self._recorder, 0)
        except ProcessLookupError:
            return True
        except OSError:  # it is somebody else's by now, as after sudo
            pass
        return not os.path.isdir(self._folder)
