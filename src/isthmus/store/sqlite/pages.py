"""Pages that were listed lately, for the many clients that ask the same again.

A page stays true until an object of its kind changes; all changes go through this process, so the hub knows. Pages
are small ones only, and few.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Any

from isthmus.store.base import Page
from isthmus.store.hub import Hub
from isthmus.store.paging import decode_position, encode_position

from .reading import PageQuery

_PAGES = 128
_RECORDS = 500
_BYTES = 32 * 2**20


class PageCache:
    """The pages listed lately."""

    def __init__(self) -> None:
        self._pages: OrderedDict[Any, tuple[int, int, Page]] = OrderedDict()
        self._bytes = 0

    def find(self, wanted: PageQuery, hub: Hub) -> Page | None:
        """The page, if nothing of its kind has changed since."""
        query = wanted.query
        key = (query.kind.name, query.namespace, query.labels, query.fields, *wanted[1:])
        found = self._pages.get(key)
        if found is None:
            return None
        seen, size, page = found
        if hub.touched(query.kind.name) > seen:
            del self._pages[key]
            self._bytes -= size
            return None
        if hub.version > page.version:  # as true now as then; an old version would soon be too old to watch from
            page = _at_version(page, hub.version)
            self._pages[key] = (seen, size, page)
        self._pages.move_to_end(key)
        return page

    def keep(self, wanted: PageQuery, page: Page) -> None:
        """Remember a first page."""
        if wanted.token is not None or len(page.records) > _RECORDS:
            return
        query = wanted.query
        key = (query.kind.name, query.namespace, query.labels, query.fields, *wanted[1:])
        size = sum([len(record.data) for record in page.records])
        previous = self._pages.pop(key, None)
        self._bytes += size - (previous[1] if previous else 0)
        self._pages[key] = (page.version, size, page)
        while self._pages and (len(self._pages) > _PAGES or self._bytes > _BYTES):
            self._bytes -= self._pages.popitem(last=False)[1][1]


def _at_version(page: Page, version: int) -> Page:
    token = page.continue_ and encode_position(decode_position(page.continue_)._replace(version=version))
    return replace(page, version=version, continue_=token)
