"""The command line: words in, one action, text or JSON out. It decides nothing the gateway should decide.

A command's module imports only click; what it works with is imported inside the function, so that `--help`
and `call` start in a moment.
"""

from tooldock.cli.root import main

__all__ = ["main"]
