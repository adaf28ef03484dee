"""The one exception a user's mistake ends in."""


class ProfilerError(Exception):
    """What happened, and what to do about it. Printed without a traceback."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message} {remedy}".strip())
        self.message = message
        self.remedy = remedy
