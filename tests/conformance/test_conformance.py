"""Both official suites, at every revision they test, against a gateway as people run it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.suite import Check, Leg, run, table
from tests.gateway import Gateway, running
from tests.node import needs_node

pytestmark = [pytest.mark.process, pytest.mark.conformance, needs_node, pytest.mark.timeout(330)]

NAMESPACE = "conformance"
FIXTURE = Path(__file__).parents[1] / "fixtures" / NAMESPACE

MEANT_TO_FAIL = {"test_error_handling", "test_missing_capability"}
LISTED_ONLY = {"json_schema_2020_12_tool"}
LEFT_WAITING = {
    "test_input_required_result_capabilities",
    "test_input_required_result_tampered_state",
    "test_streaming_elicitation",
}
"""Tools whose question the suites look at and leave unanswered."""

LEGS = [
    Leg(
        name="handshake suite",
        package="conformance-handshake",
        options=("--suite", "all"),
        scenarios=32,
        checks=47,
    ),
    Leg(
        name="modern suite, 2025-11-25",
        package="conformance-modern",
        options=("--suite", "all", "--spec-version", "2025-11-25"),
        scenarios=33,
        checks=84,
    ),
    Leg(
        name="modern suite, 2026-07-28",
        package="conformance-modern",
        options=("--suite", "all", "--spec-version", "2026-07-28"),
        scenarios=40,
        checks=151,
        # It answers questions that nobody has asked yet, without a state, and would like them to be heard. Somebody
        # who answers has to have seen the question, so they are not.
        warned=frozenset({"sep-2322-ignore-unexpected-params"}),
    ),
]


Run = Callable[[Leg], list[Check]]


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory, venvs: Path) -> Iterator[Gateway]:
    """A gateway without authentication, as the suites have no credentials, on loopback; its settings as they come."""
    data = tmp_path_factory.mktemp("conformance")
    shutil.copytree(FIXTURE, data / "tools" / NAMESPACE, ignore=shutil.ignore_patterns("__pycache__"))
    with running(data, venvs, AUTH_DISABLED="true") as gateway:
        gateway.start()
        assert gateway.settled()[NAMESPACE]["status"] == "ready", gateway.namespaces()
        yield gateway


@pytest.fixture(scope="module")
def checks_of(serving: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Each leg is run once, by whichever test wants it first."""
    done: dict[str, list[Check]] = {}

    def checks(leg: Leg) -> list[Check]:
        if leg.name not in done:
            folder = tmp_path_factory.mktemp("results") / "leg"
            done[leg.name] = run(leg, f"{serving.url}/ns/{NAMESPACE}/mcp", folder)
        return done[leg.name]

    return checks


@pytest.mark.parametrize("leg", LEGS, ids=lambda leg: leg.name)
def test_every_check_of_the_suite_passes(leg: Leg, checks_of: Run) -> None:
    checks = checks_of(leg)
    passed = sum(check.status == "SUCCESS" for check in checks)
    failed = sum(check.status == "FAILURE" for check in checks)
    seen = f"\n{leg.name}: {passed} passed, {failed} failed, {len(leg.warned)} warned of\n{table(checks, leg.warned)}"
    print(seen)
    assert {check.id for check in checks if check.status == "WARNING"} == leg.warned, seen
    assert not [check for check in checks if check.is_bad and check.id not in leg.warned], seen
    assert len({check.scenario for check in checks}) == leg.scenarios, seen
    assert passed >= leg.checks, seen


def test_no_check_passed_because_something_was_missing(serving: Gateway, checks_of: Run) -> None:
    """The suites take some errors for answers. The audit knows what was really called, and what came of it."""
    for leg in LEGS:
        checks_of(leg)
    lines = serving.audit()
    missing = {line["tool"] for line in lines if (line["error"] or "").endswith("_not_found")}
    assert missing == {"test://nonexistent-resource-for-conformance-testing"}
    listed = serving.request("GET", f"/ns/{NAMESPACE}/tools").json()["tools"]
    succeeded = {line["tool"] for line in lines if line["status"] == "ok"}
    assert {tool["name"] for tool in listed} - succeeded == MEANT_TO_FAIL | LISTED_ONLY | LEFT_WAITING
