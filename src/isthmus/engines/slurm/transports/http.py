"""What asks slurmrestd."""

from __future__ import annotations

from isthmus._kit.http import Answer, HttpClient, NoAnswer

__all__ = ["Answer", "HttpClient", "NoAnswer"]
