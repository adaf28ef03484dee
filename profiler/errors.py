"""The one exception with which every user error ends."""


class ProfilerError(Exception):
    """An error with its message and its remedy, printed without a traceback."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message} {remedy}".strip())
        self.message = message
        self.remedy = remedy

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        """Pickle it by what it is made from: helper processes send it."""
        return type(self), (self.message, self.remedy)
