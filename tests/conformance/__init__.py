"""The protocol's official suites against a real gateway that serves `tests/fixtures/conformance`."""
