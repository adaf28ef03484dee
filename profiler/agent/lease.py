"""The lease of hooks attached to a running program. Hooks stay only as long as the command that installed them."""

import posix
from collections.abc import Callable
from typing import Any

from .files import is_folder


class Lease:
    """The link to the attaching command, checked rarely: at ticks, and in workers at each batch."""

    def __init__(self, settings: dict[str, Any], end: Callable[[], None] = lambda: None) -> None:
        """Take the lease; `end` removes the hooks."""
        self.end = end
        self._recorder = int(settings["recorder"])
        self._folder: str = settings["rings"]

    @property
    def is_over(self) -> bool:
        """Return whether the recorder has exited or has removed its rings folder."""
        try:
            posix.kill(self._recorder, 0)
        except ProcessLookupError:
            return True
        except OSError:  # it is somebody else's by now, as after sudo
            pass
        return not is_folder(self._folder)
