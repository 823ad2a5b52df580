"""`isthmus host`, as an administrator uses it, with a real BMC's emulator behind it."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from isthmus.testing.bmcs import PASSWORD, Bmc

from .conftest import Call


def test_a_machine_is_described_switched_on_and_shown(isthmus: Call, tmp_path: Path) -> None:
    bmc = Bmc(tmp_path / "bmc")
    bmc.start()
    try:
        redfish = {"url": bmc.url, "credentialsFile": str(bmc.credentials), "certificate": bmc.certificate}
        manifest = {"apiVersion": "isthmus.dev/v1", "kind": "Host", "metadata": {"name": "node-12"}}
        (tmp_path / "host.yaml").write_text(yaml.safe_dump({**manifest, "spec": {"redfish": redfish}}))
        assert isthmus("apply", "-f", str(tmp_path / "host.yaml")).stdout == "host/node-12 created\n"
        done = isthmus("host", "node-12", "--power", "on", "--wait")
        assert done.returncode == 0, done.stderr
        facts = dict(line.split(":", 1) for line in done.stdout.splitlines())
        assert facts["Power"].strip() == "On"
        assert facts["Wanted"].strip() == "On"
        (listed,) = json.loads(isthmus("hosts", "-o", "json").stdout)["items"]
        assert listed["status"]["power"] == "On"
        assert PASSWORD not in json.dumps(listed)
        assert "say on or off" in isthmus("host", "node-12", "--power", "up").stderr
        assert "--wait goes with --power" in isthmus("host", "node-12", "--wait").stderr
    finally:
        bmc.stop()
        isthmus("delete", "host", "node-12")
