"""An async tool that asks a web service.

It needs a package (requirements.txt), and a secret and a variable (tooldock.yaml). Both of these reach it in
the environment of its own worker; no other namespace is given them.
"""

import os
from typing import Annotated, Any, Literal

import httpx
from fastmcp.exceptions import ToolError
from fastmcp.tools import tool
from pydantic import Field

TIMEOUT_SECONDS = 10.0


@tool(annotations={"readOnlyHint": True, "openWorldHint": True})
async def get_weather(
    city: Annotated[str, Field(min_length=1, max_length=100, description="A city, like Berlin or New York.")],
    units: Annotated[
        Literal["metric", "imperial"], Field(description="metric for Celsius, imperial for Fahrenheit.")
    ] = "metric",
) -> dict[str, Any]:
    """Tell the current weather in a city.

    Returns:
        The city as the service names it, temperature, humidity in percent, and a description in words.
    """
    key = os.environ.get("WEATHER_API_KEY")
    if not key:
        # A ToolError's text reaches the caller as it is, so it should say what to do.
        raise ToolError("The secret WEATHER_API_KEY is not set for this namespace.")
    base_url = os.environ.get("WEATHER_BASE_URL", "https://api.openweathermap.org")
    async with httpx.AsyncClient(base_url=base_url, timeout=TIMEOUT_SECONDS) as client:
        response = await client.get("/data/2.5/weather", params={"q": city, "units": units, "appid": key})
    if response.status_code == httpx.codes.NOT_FOUND:
        raise ToolError(f"The weather service knows no city {city!r}.")
    if response.is_error:
        raise ToolError(f"The weather service answered with status {response.status_code}.")
    report = response.json()
    return {
        "city": report["name"],
        "temperature": report["main"]["temp"],
        "humidity": report["main"]["humidity"],
        "description": report["weather"][0]["description"],
    }
