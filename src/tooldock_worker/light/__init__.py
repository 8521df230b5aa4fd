"""The light `fastmcp`: the few names tool files need, without the framework behind them.

Importing the framework costs a worker a second and tens of megabytes. Tool files keep its import lines, so
they run unchanged under either; where an environment holds the real package, that one is used.
"""

from tooldock_worker.light.modules import install

__all__ = ["install"]
