"""Reasons: one line of text that is a headline and a list by site, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus._kit.reasons import MOST_SITES, Closeness, Hindrance, Reasons, no_site, read_reasons

SITES = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
CLAUSES = st.text(st.characters(codec="ascii", exclude_characters=";\n"), min_size=1).filter(str.strip)


@given(st.lists(st.tuples(SITES, CLAUSES), max_size=8))
def test_what_is_written_is_read_back(sites: list[tuple[str, str]]) -> None:
    reasons = Reasons("no site can run this job", tuple(sites))
    assert read_reasons(str(reasons)) == reasons


@given(st.text())
def test_any_text_is_read_and_nothing_of_it_is_lost(text: str) -> None:
    found = read_reasons(text)
    assert all(site in text and why in text for site, why in found.sites)
    assert found.headline in text
    assert found.sites or found.headline == text


def test_the_headline_is_what_fails_where_it_fails_last() -> None:
    found = no_site(
        [
            Hindrance("abroad", "not among the sites asked for (local, hpc)", Closeness.EXCLUDED),
            Hindrance("hpc", "it does not answer", Closeness.CLOSED),
            Hindrance("local", "it has 2 CPUs, the job asks for 512", Closeness.UNABLE),
        ]
    )
    assert found.headline == "no site can run this job: local has 2 CPUs, the job asks for 512"
    assert [site for site, _ in found.sites] == ["local", "hpc", "abroad"], "those excluded on purpose are last"
    assert read_reasons(str(found)) == found


def test_a_site_that_would_suit_and_is_away_comes_first() -> None:
    small = Hindrance("local", "it has 2 CPUs, the job asks for 8", Closeness.UNABLE)
    found = no_site([small, Hindrance("hpc", "it does not answer", Closeness.AWAY)])
    assert found.headline == "no site can run this job: hpc does not answer"


def test_many_sites_are_counted_and_not_all_listed() -> None:
    found = no_site(Hindrance(f"s{number}", "it has no akida", Closeness.UNABLE) for number in range(50))
    assert len(found.sites) == MOST_SITES
    assert found.headline == "no site can run this job: s0 has no akida (and 49 more sites)"


@pytest.mark.parametrize(
    ("text", "headline", "sites"),
    [
        ("2 of 2 CPUs free; hpc: 0 of 4 CPUs free", "2 of 2 CPUs free", ["hpc"]),
        ("no site satisfies the job. a: x; b: y", "no site satisfies the job", ["a", "b"]),
        ("waits for job train", "waits for job train", []),
        ("exit 1; see: the log", "exit 1", ["see"]),
        ("", "", []),
    ],
)
def test_texts_of_other_origins(text: str, headline: str, sites: list[str]) -> None:
    found = read_reasons(text)
    assert found.headline == headline
    assert [site for site, _ in found.sites] == sites
