"""The few questions that the lab itself has for its API server."""

from __future__ import annotations

import contextlib
import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from isthmus.errors import AlreadyExists, SiteUnavailable
from isthmus.kubernetes.answers import SITE, error_of
from isthmus.lab.certificates import Authority


class LabClient:
    """Calls an API server as its administrator."""

    def __init__(self, url: str, keys: Path) -> None:
        authority = Authority(keys)
        self._url = url
        self._context = ssl.create_default_context(cafile=str(authority.ca))
        self._context.load_cert_chain(*authority.issue("admin", "admin", ["system:masters"]))

    def ask(self, path: str, body: Any = None, *, method: str = "", kind: str = "application/json") -> Any:
        """One request; raises what its answer means to a site."""
        return json.loads(self.text(path, body, method=method, kind=kind))

    def text(self, path: str, body: Any = None, *, method: str = "", kind: str = "application/json") -> str:
        """The same, where the answer is not JSON."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": kind} if data is not None else {}
        request = urllib.request.Request(  # noqa: S310 - the lab's own server
            f"{self._url}{path}", data=data, headers=headers, method=method or ("GET" if data is None else "POST")
        )
        try:
            with urllib.request.urlopen(request, timeout=30, context=self._context) as answer:  # noqa: S310
                return str(answer.read(), "utf-8")
        except urllib.error.HTTPError as error:
            with error:
                raise error_of(error.code, error.read(), path, SITE) from None
        except OSError as error:
            raise SiteUnavailable(f"the API server does not answer: {error}") from None

    def create(self, path: str, obj: Any) -> None:
        """Make an object; one that is there already is left as it is."""
        with contextlib.suppress(AlreadyExists):
            self.ask(path, obj)
