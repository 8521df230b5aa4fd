"""Wires: each turns bytes into a `Call` and an `Outcome` into bytes, and knows no tool and no other wire."""
