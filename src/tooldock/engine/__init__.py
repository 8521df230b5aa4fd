"""What happens to every call, whichever wire it came by and whatever kind of tool it is for.

Rules and records; no files of operators, no processes, no wires.
"""
