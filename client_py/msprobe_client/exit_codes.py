"""Exit codes of the command lines. Imports nothing."""

EXIT_DIFFERS = 1  # or holds something that should not be there
EXIT_USAGE = 2
EXIT_FAILED = 3
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE, as a shell reports it
