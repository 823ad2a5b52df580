"""What the owner of a machine permits is what runs there."""

from __future__ import annotations

from datetime import time

import pytest

from isthmus.agent.owner_rules import OwnerRules, parse_rules, within
from isthmus.engines.base import Account, Run
from isthmus.errors import EngineRefused, Misconfigured, SiteUnavailable
from isthmus.resources.deviceclasses import DeviceClass

NOON = time(12)


def run(**fields: object) -> Run:
    return Run("6f1d4b2e-0000-4000-8000-0123456789ab.0", "physics", "job", command=("true",), **fields)  # type: ignore[arg-type]


def check(rules: OwnerRules, one: Run, clock: time = NOON, *, superuser: bool = True) -> None:
    rules.check(one, clock, lambda uid: uid < 1000, superuser=superuser)


def test_without_a_file_everything_runs_but_under_accounts_of_the_machine() -> None:
    check(OwnerRules(), run(image="python:3.12", devices={"akida": 1}, account=Account(uid=200_000)))
    with pytest.raises(EngineRefused, match="account of this machine"):
        check(OwnerRules(), run(account=Account(uid=33)))
    with pytest.raises(EngineRefused, match="under the account www-data"):
        check(OwnerRules(), run(account=Account(user="www-data")))
    check(OwnerRules(accounts=("www-data",)), run(account=Account(user="www-data")))
    check(OwnerRules(), run(account=Account(user="www-data")), superuser=False)  # it runs under the agent's own


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ('tenants = ["math", "bio-*"]', {}),
        ("images = []", {"image": "python:3.12"}),
        ('images = ["registry.example.org/*"]', {"image": "docker.io/registry.example.org/x"}),
        ('devices = ["gpu"]', {"devices": {"akida": 1}}),
    ],
)
def test_what_is_not_permitted_is_refused(text: str, refused: dict[str, object]) -> None:
    with pytest.raises(EngineRefused, match="The owner of this machine"):
        check(parse_rules(text), run(**refused))


def test_hours_are_a_matter_of_time_and_go_over_midnight() -> None:
    rules = parse_rules('hours = "22:00-06:00"')
    with pytest.raises(SiteUnavailable, match="22:00-06:00"):
        check(rules, run())
    for clock, good in (
        (time(21, 59), False),
        (time(22), True),
        (time(23, 59), True),
        (time(5, 59), True),
        (time(6), False),
    ):
        assert within(rules.hours, clock) is good
    assert within("08:00-17:00", NOON)


def test_commands_of_device_classes_do_not_run_unless_the_owner_says_so() -> None:
    board = DeviceClass.model_validate(
        {
            "metadata": {"name": "akida"},
            "spec": {
                "use": {"source": "Command", "command": ["/usr/bin/id"]},
                "meter": {"source": "Command", "command": ["/usr/bin/id"]},
            },
        }
    )
    kept = OwnerRules().permitted(board)
    assert kept is not None
    assert (kept.spec.use, kept.spec.meter) == (None, None)
    assert OwnerRules(commands=True).permitted(board) == board
    assert OwnerRules(devices=("gpu",)).permitted(board) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tenants = 'all", "not TOML"),
        ("tenant = ['a']", "there is no setting 'tenant'; there are tenants"),
        ("tenants = 'a'", "tenants must be a list of texts"),
        ("hours = '9-17'", "hours must be such as 22:00-06:00"),
        ("hours = '25:00-26:00'", "hours must be"),
        ("memory = '8 elephants'", "memory must be a size"),
        ("cpus = -1", "cpus must be a number above 0"),
        ("isolation = 'Maybe'", "isolation must be one of Required"),
        ("[[device]]\npaths = ['/dev/x']", "device must be tables"),
        ("[[device]]\nclass = 'x'\npaths = ['/dev/../etc/shadow']", "device must be tables"),
    ],
)
def test_a_mistake_in_the_file_is_named(text: str, why: str) -> None:
    with pytest.raises(Misconfigured, match=why):
        parse_rules(text)


def test_a_whole_file() -> None:
    rules = parse_rules(
        'cpus = 4\nmemory = "8Gi"\nvisible = ["/data"]\n[[device]]\nclass = "akida"\npaths = ["/dev/akida0"]\n'
    )
    assert (rules.cpus, rules.memory, rules.visible) == (4, "8Gi", ("/data",))
    assert rules.device[0]["class"] == "akida"
    assert rules.describe() == "everything"
    assert parse_rules('tenants = ["a"]\nimages = []\n').describe() == "tenants: a; images: none"
