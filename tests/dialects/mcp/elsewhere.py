"""Stands for the other era where a test is about one of them."""

from __future__ import annotations

from typing import Any

from tooldock.edge.http import Request, Response
from tooldock.engine.registry import Change


class Elsewhere:
    """Answers everything with a status nobody else uses."""

    async def post(self, request: Request, value: Any) -> Response:
        return Response(418)

    async def get(self, request: Request) -> Response:
        return Response(418)

    async def delete(self, request: Request) -> Response:
        return Response(418)

    def on_change(self, change: Change) -> None:
        return None

    def numbers(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        return None
