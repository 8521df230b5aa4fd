"""Processes the gateway keeps alive: how they are started, watched, talked to and ended.

Knows process ids and pipes, not what is said through them.
"""
