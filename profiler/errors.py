"""The exception for every user error."""


class ProfilerError(Exception):
    """An error with its message and its remedy, printed without a traceback."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message} {remedy}".strip())
        self.message = message
        self.remedy = remedy

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        """Return the class and arguments to rebuild it from: helper processes send it pickled."""
        return type(self), (self.message, self.remedy)
