"""The web console: pages over the same reads and writes as the API.

Belongs here: sign-in by cookie, pages, forms, and what notifies an open page that something changed. Does not: any
right or rule. Every write, and every read of one object, is a request that the API itself answers inside this
process (`calling.py`), so that the console can do nothing that its user could not do with `curl`.

Pages are made here by Jinja2 and are whole without script; the modules in `static/` keep them up to date.
"""

from .app import Console

__all__ = ["Console"]
