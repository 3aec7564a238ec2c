"""What is raised at a user, where a configuration or a call is wrong."""


class MsprobeError(Exception):
    """A wrong configuration or a wrong call; the message says what is wrong, the value, and what would be right."""
