"""The one exception with which every user error ends."""


class ProfilerError(Exception):
    """An error with its message and its remedy, printed without a traceback."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message} {remedy}".strip())
        self.message = message
        self.remedy = remedy
