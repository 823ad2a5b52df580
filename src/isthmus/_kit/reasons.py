"""Reasons: why work waits or went where it did, as a short headline and a list by site.

A status has one line of text for it, which every client of Kubernetes' can show: `headline. site: why; site: why`.
`Reasons` writes that line and `read_reasons` reads it, so that the console and the command line show the headline and
fold the list. Sites that come closest to what a job asks for are first; those that it excludes itself are last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

NO_SITE = "no site can run this job"
MOST_SITES = 20
"""Sites that are listed."""
_SITE = re.compile(r"([a-z0-9](?:[a-z0-9.-]{0,252})): (.+)", re.DOTALL)


class Closeness(IntEnum):
    """How near a site is to taking a job: what fails first of all, and what fails only at the end."""

    EXCLUDED = 0
    """The job names other sites, or its tenant may not use this one."""
    UNLIKE = 1
    """Its labels or its driver are not those that the job asks for."""
    CLOSED = 2
    """It takes no work now, and would not suit either as far as it is known."""
    UNABLE = 3
    """It lacks what the job asks for."""
    AWAY = 4
    """It would suit, and takes no work now."""


@dataclass(frozen=True, slots=True)
class Hindrance:
    """Why one site cannot take a job."""

    site: str
    why: str
    closeness: Closeness

    @property
    def sentence(self) -> str:
        """With the name of the site in place of `it`."""
        for begin, named in (("it ", f"{self.site} "), ("its ", f"{self.site}: its ")):
            if self.why.startswith(begin):
                return named + self.why.removeprefix(begin)
        return f"{self.site}: {self.why}"


@dataclass(frozen=True, slots=True)
class Reasons:
    """A headline, and what is to be said of single sites."""

    headline: str
    sites: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        listed = "; ".join(f"{site}: {why.replace('; ', ', ')}" for site, why in self.sites)
        return f"{self.headline.rstrip('.')}. {listed}" if listed else self.headline


def no_site(hindrances: Iterable[Hindrance]) -> Reasons:
    """The message of a job that no site can take: what fails where it fails last, then every site."""
    found = sorted(hindrances, key=lambda one: -one.closeness)
    if not found:
        return Reasons(NO_SITE)
    closest = [one for one in found if one.closeness is found[0].closeness]
    more = len(closest) - 1
    further = f" (and {more} more {'site' if more == 1 else 'sites'})" if more else ""
    headline = f"{NO_SITE}: {closest[0].sentence.replace('; ', ', ')}{further}"
    return Reasons(headline, tuple((one.site, one.why) for one in found[:MOST_SITES]))


def read_reasons(text: str) -> Reasons:
    """The headline and the list in a line of text; a text of another form is a headline as a whole."""
    head, *pieces = text.split("; ")
    listed: list[tuple[str, str]] = []
    while pieces and (found := _SITE.fullmatch(pieces[-1])):
        listed.insert(0, (found[1], found[2]))
        pieces.pop()
    headline, dot, first = head.rpartition(". ")
    if not pieces and dot and (found := _SITE.fullmatch(first)):
        return Reasons(headline, ((found[1], found[2]), *listed))
    return Reasons("; ".join([head, *pieces]), tuple(listed))
