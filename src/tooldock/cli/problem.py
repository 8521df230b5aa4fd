"""The gateway's error answers in words: what happened, which fields, and the command that helps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tooldock.cli.failure import ExitCode, Failure
from tooldock.cli.terminal import printable

if TYPE_CHECKING:
    from tooldock.cli.gateway import Answer

_SHOWN = 10


def explain(answer: Answer, *, namespace: str = "", tool: str = "") -> Failure:
    """The failure an error answer stands for."""
    error = _error(answer)
    if error is None:
        return Failure(
            f"The gateway answered with status {answer.status} and no explanation.",
            next_step="look at `tooldock doctor`.",
        )
    code = str(error.get("code", "error"))
    details = error.get("details")
    facts = _facts(str(error.get("message")), details if isinstance(details, dict) else {}, namespace, tool)
    if error.get("request_id"):
        facts.append(f"request {printable(str(error['request_id']))}")
    return Failure(
        f"{printable(str(error.get('message', '')))} ({code})",
        code=ExitCode.TIMEOUT if code == "execution_timeout" else ExitCode.FAILED,
        facts=facts,
        next_step=_next_step(code, namespace, answer, details if isinstance(details, dict) else {}),
    )


def _error(answer: Answer) -> Mapping[str, Any] | None:
    try:
        error = json.loads(answer.body)["error"]
    except (ValueError, KeyError, TypeError):
        return None
    return error if isinstance(error, dict) else None


def _facts(message: str, details: Mapping[str, Any], namespace: str, tool: str) -> list[str]:
    """What the message does not say already."""
    facts = []
    for fault in _list(details.get("errors")):
        if isinstance(fault, dict) and str(fault.get("message")) not in message:
            path = printable(str(fault.get("path") or "")) or "arguments"
            facts.append(f"- {path}: {printable(str(fault.get('message', '')))}")
    available = [printable(str(name)) for name in _list(details.get("available"))]
    if available:
        import difflib

        near = difflib.get_close_matches(tool, available, n=_SHOWN, cutoff=0.3)
        shown = list(dict.fromkeys([*near, *available]))[:_SHOWN]
        more = f" and {len(available) - len(shown)} more" if len(available) > len(shown) else ""
        facts.append(f"{namespace} has: {', '.join(shown)}{more}")
    return facts


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _next_step(code: str, namespace: str, answer: Answer, details: Mapping[str, Any]) -> str:
    shown = namespace or "NAMESPACE"
    if code == "dependency_error" and details.get("file"):
        line = f", line {details['line']}" if details.get("line") else ""
        return f"mend {printable(str(details['file']))}{line}, then `tooldock reload`."
    if code in ("tool_error", "dependency_error", "internal_error"):
        return f"`tooldock logs {shown}` shows what it printed, with the traceback if it raised."
    if code == "unavailable":
        wait = f" in {answer.retry_after} s" if answer.retry_after else " in a moment"
        return f"try again{wait}; `tooldock namespaces` shows how it is."
    steps = {
        "tool_not_found": f"`tooldock tools {shown}` lists its tools.",
        "namespace_not_found": "if its folder is new, `tooldock reload` takes it in.",
        "invalid_arguments": f"`tooldock tools {shown}` shows what each tool takes.",
        "not_authenticated": "set BEARER_TOKEN to the token of this gateway.",
        "execution_timeout": f"`tooldock logs {shown}` shows how far it came.",
    }
    return steps.get(code, "")
