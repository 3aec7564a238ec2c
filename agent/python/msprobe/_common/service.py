"""What user code reads of ``debugger.service``."""


class Service:
    """The step that is captured now is ``current_iter``: ``loop`` steps after ``init_step``."""

    def __init__(self) -> None:
        self.loop = 0
        self.init_step = 0
        self.current_iter = 0
        self.data_collector = None
