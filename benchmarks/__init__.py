"""What ToolDock costs, measured beside a reference and its peers in one run: `python -m benchmarks`.

Not part of the installed package, and it imports nothing from it: the gateway is measured from outside, as a
process with an address, exactly like the servers it is compared with.
"""
