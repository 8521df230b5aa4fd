"""What every HTTP face shares: requests, credentials, origins, limits, metrics and the listener.

Plain ASGI. The edge knows no tool, no namespace's content and no dialect's envelope: a dialect is the
handler behind `Front`, and turns an error into its own answer.
"""

from tooldock.edge.credentials import Credentials, ManagerGuard
from tooldock.edge.docs import Docs
from tooldock.edge.front import Front
from tooldock.edge.hosts import Hosts
from tooldock.edge.http import Handler, HttpError, Request, Response
from tooldock.edge.metrics import Metrics
from tooldock.edge.origins import Origins
from tooldock.edge.proxies import Networks, Proxies
from tooldock.edge.server import Tls, bind, server_config

__all__ = [
    "Credentials",
    "Docs",
    "Front",
    "Handler",
    "Hosts",
    "HttpError",
    "ManagerGuard",
    "Metrics",
    "Networks",
    "Origins",
    "Proxies",
    "Request",
    "Response",
    "Tls",
    "bind",
    "server_config",
]
