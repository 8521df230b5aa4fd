"""A worker is killed again and again while callers keep calling: what they see of it.

Every request must get an answer; the only failure allowed is the retryable one (503 with Retry-After), at
most one for each caller and kill; the next worker answers within half a second; nothing is left behind. Only
processes in the tree of the gateway started here are ever killed.

Two legs: with a tool that returns at once, so that hardly any call is running when the worker dies, and with
one that waits, so that every caller has one running.
"""

from __future__ import annotations

import os
import signal
import time
from array import array
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.environments import NotMeasurable
from benchmarks.findings import Finding
from benchmarks.gateway import Gateway, running_gateway
from benchmarks.load import Refusal, Result
from benchmarks.measures import Effort
from benchmarks.processes import Process, tree, wait_gone
from benchmarks.servers import gateway, rest

CALLERS = 16
INTERVAL = 2.0
RECOVERY = 0.5
SETTLE_SECONDS = 10.0
"""How long the number of processes may take to come back to what it was."""


@dataclass(frozen=True, slots=True)
class Story:
    """What happened, on one clock: CLOCK_MONOTONIC is the same in every process."""

    kills: list[float]
    result: Result
    samples: Sequence[float]
    """Pairs of sent and answered, in the order of the answers."""
    before: int
    after: int
    leftovers: list[Process]


def faults(directory: Path, effort: Effort) -> list[Finding]:
    found: list[Finding] = []
    for tool, title, seconds in (
        ("echo", "quick tool", effort.fault_seconds),
        ("slow", "waiting tool", max(effort.fault_seconds / 3, 3 * INTERVAL)),
    ):
        place = directory / tool
        with running_gateway(gateway("faults", "", rest(tool)), place) as ours:
            found += findings(title, _endure(ours, place, seconds))
    return found


def _endure(ours: Gateway, directory: Path, seconds: float) -> Story:
    before = len(tree(ours.pid))
    file = directory / "samples"
    kills: list[float] = []
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(ours.server.load, CALLERS, seconds, samples=str(file))
        try:
            _kill_while(ours, loading, time.monotonic() + seconds, kills)
            result = loading.result()
        except BaseException:
            # Without a server the load gives up at once, and the pool need not wait for its end.
            ours.server.child.stop()
            raise
    samples = array("d")
    samples.frombytes(file.read_bytes())
    after = _settled(ours, before)
    return Story(kills, result, samples, before, after, ours.server.child.stop())


def _kill_while(ours: Gateway, loading: Future[Result], until: float, kills: list[float]) -> None:
    # The last kill leaves one interval to recover in before the load ends.
    while time.monotonic() + INTERVAL <= until and not loading.done():
        time.sleep(INTERVAL)
        pid = ours.workers().get("bench")
        worker = next((process for process in tree(ours.pid) if process.pid == pid), None)
        if worker is None:
            continue
        kills.append(time.monotonic())
        os.kill(worker.pid, signal.SIGKILL)
        if not wait_gone(worker, 1.0):
            raise NotMeasurable(f"process {worker.pid} survived being killed")


def _settled(ours: Gateway, wanted: int) -> int:
    deadline = time.monotonic() + SETTLE_SECONDS
    while (count := len(tree(ours.pid))) != wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    return count


def findings(title: str, story: Story) -> list[Finding]:
    """The story of one leg held against the promises."""
    if not story.kills:
        raise NotMeasurable("no worker was found that could be killed")
    result = story.result
    unanswered = result.lost + result.hung + result.wrong
    other = [one for one in result.refusals if not _retryable(one)]
    name = "faults"
    note = ", ".join(f"{count:,} with {status}" for status, count in result.statuses.items())
    return [
        Finding(name, f"{title}: workers killed under load", len(story.kills), note=note),
        Finding(
            name,
            f"{title}: requests without their answer",
            unanswered,
            "",
            0,
            note=(result.problem or "") if unanswered else "",
        ),
        Finding(name, f"{title}: failures that were not a retryable 503", len(other), "", 0),
        Finding(name, f"{title}: retryable failures after one kill, at most", _most_refusals(story), "", CALLERS),
        Finding(name, f"{title}: kill to the next good answer, at most", _slowest_recovery(story), "s", RECOVERY),
        Finding(
            name,
            f"{title}: processes more or fewer than before",
            abs(story.after - story.before),
            "",
            0,
            note=f"{story.before} before, {story.after} after",
        ),
        Finding(name, f"{title}: processes that outlived the gateway", len(story.leftovers), "", 0),
    ]


def _retryable(refusal: Refusal) -> bool:
    return refusal.status == 503 and refusal.retry_after is not None


def _most_refusals(story: Story) -> int:
    ends = [*story.kills[1:], float("inf")]
    return max(
        sum(start <= one.answered < end for one in story.result.refusals if _retryable(one))
        for start, end in zip(story.kills, ends, strict=True)
    )


def _slowest_recovery(story: Story) -> float:
    return max(_recovery(kill, story.samples) for kill in story.kills)


def _recovery(kill: float, samples: Sequence[float]) -> float:
    """From the kill to the first good answer to a request that was sent after it, or infinity."""
    later = (samples[at + 1] for at in range(0, len(samples), 2) if samples[at] >= kill)
    return next(later, float("inf")) - kill
