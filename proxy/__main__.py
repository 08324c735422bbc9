"""`python -m agentspec.proxy` is the command `agentspec`."""

from agentspec.proxy.cli import main

main()
