"""What may be thrown away: leftovers of earlier runs, and logs past their time."""

from __future__ import annotations

import re
import shutil
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from tooldock.paths import Paths

_AUDIT_FILE = re.compile(r"(\d{4}-\d{2}-\d{2})(?:\.[A-Za-z0-9_-]+)?\.jsonl")


def clear_scratch(paths: Paths, role: str) -> None:
    """Scratch directories of this role's earlier run; nobody uses them any more."""
    shutil.rmtree(paths.run_dir(role) / "scratch", ignore_errors=True)


def expired_logs(paths: Paths, days: int, today: date | None = None) -> list[Path]:
    """Daily logs older than `days`; 0 keeps them for ever."""
    if days <= 0 or not paths.logs.is_dir():
        return []
    oldest = (today or datetime.now(UTC).date()) - timedelta(days=days)
    found = []
    for path in sorted(paths.logs.iterdir()):
        match = _AUDIT_FILE.fullmatch(path.name)
        if match and _day(match[1]) is not None and date.fromisoformat(match[1]) < oldest:
            found.append(path)
    return found


def expire_logs(paths: Paths, days: int) -> list[Path]:
    found = expired_logs(paths, days)
    for path in found:
        path.unlink(missing_ok=True)
    return found


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None
