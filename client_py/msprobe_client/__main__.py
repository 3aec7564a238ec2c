"""`python -m msprobe_client` is msprobe-client."""

from msprobe_client.commands import main

main()
