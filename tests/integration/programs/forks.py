"""The other end of harness/fork_server.py: one import of torch and msprobe for many processes."""

import json
import os
import pathlib
import signal
import sys

from say import say


def serve(train):
    """Forks a process for each request, a JSON object a line, and answers with its process id. The process prints to
    the request's "log", has its "env", and calls train() with the rest."""
    import msprobe.pytorch  # noqa: F401  (once, before the forks)

    # Nobody waits for the children, which may be killed.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            os.environ.update(request.pop("env", {}))
            with pathlib.Path(request.pop("log")).open("ab") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            train(**request)
            return
        say(json.dumps({"pid": child}))
