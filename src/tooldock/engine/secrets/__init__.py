"""Secrets at run time: which values a namespace gets, and keeping them out of everything that leaves."""

from tooldock.engine.secrets.redact import RedactedStream, Redactor
from tooldock.engine.secrets.store import Secrets, SecretStatus, read, seal

__all__ = ["RedactedStream", "Redactor", "SecretStatus", "Secrets", "read", "seal"]
