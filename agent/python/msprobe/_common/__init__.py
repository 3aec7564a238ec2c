"""What the debuggers of every framework share: configuration, arguments, control, messages. Imports no framework."""
