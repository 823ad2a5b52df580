"""What BMCs answer: whatever it is, it becomes something bounded."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from isthmus.hosts.redfish import parsing
from isthmus.resources.hosts import HostPower

SYSTEM = {
    "Id": "1",
    "Name": "node-1",
    "Manufacturer": "Contoso",
    "Model": "3500RX",
    "PowerState": "On",
    "Status": {"Health": "OK"},
    "ProcessorSummary": {"Count": 2, "CoreCount": 64},
    "MemorySummary": {"TotalSystemMemoryGiB": 96.5},
    "Actions": {"#ComputerSystem.Reset": {"target": "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset"}},
}
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*SYSTEM, "Count", "Health", "target"]), inner)
    ),
    max_leaves=8,
)


def test_a_machine_is_read() -> None:
    seen = parsing.seen(SYSTEM)
    assert (seen.power, seen.health) == (HostPower.ON, "OK")
    assert (seen.inventory.processors, seen.inventory.cores) == (2, 64)
    assert seen.inventory.memory_bytes == 96.5 * 2**30
    assert parsing.reset_target(SYSTEM, "/redfish/v1/Systems/1").endswith("/Actions/ComputerSystem.Reset")


@given(st.dictionaries(st.sampled_from(list(SYSTEM)), ANYTHING))
def test_whatever_a_bmc_says_is_bounded(system: dict[str, Any]) -> None:
    system = json.loads(json.dumps(system))
    seen = parsing.seen(system)
    assert all(len(text) <= 256 and text.isprintable() for text in (seen.health, seen.inventory.model))
    assert parsing.reset_target(system, "/redfish/v1/Systems/1").startswith("/redfish/")


@given(st.text())
def test_references_lead_to_the_same_bmc(path: str) -> None:
    found = parsing.link({"@odata.id": f"/redfish/{path}"})
    assert found == "" or (found.isascii() and ".." not in found.split("/"))
    assert parsing.link({"@odata.id": path}) == ("" if not path.startswith("/redfish/") else path)
    assert parsing.link({"@odata.id": "/redfish/../admin"}) == ""


def test_what_a_bmc_complains_about_is_one_line() -> None:
    said = {"error": {"message": "no", "@Message.ExtendedInfo": [{"Message": "power\nsupply\x1b[31m missing"}]}}
    assert parsing.complaint(json.dumps(said).encode()) == "power supply [31m missing"
    assert parsing.complaint(b"<html>") == ""
