"""`make screenshots`: the main pages of the console with real work behind them, as docs/images/console-*.png."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from isthmus.testing.browsers import chromium, signed_in
from isthmus.testing.servers import GROUP, ServerProcess, eventually, running_server

IMAGES = Path(__file__).parent / "images"
SIZE = {"width": 1280, "height": 800}
TRAIN = """\
#!/usr/bin/env python3
import json, os, random, sys, time
random.seed(1)
data = [random.random() for _ in range(2_000_000)]
os.makedirs("out")
for epoch in range(1, 400):
    end = time.time() + 0.25
    while time.time() < end:
        sum(data[:20000])
    loss = 2.3 * 0.97 ** epoch + random.random() / 20
    print(f"epoch {epoch:3d}  loss {loss:.4f}  accuracy {1 - loss / 2.6:.3f}", flush=True)
    print("isthmus:", json.dumps({"accuracy": 1 - loss / 2.6}), flush=True)
    if epoch % 20 == 0:
        print(f"warning: epoch {epoch}: learning rate is high", file=sys.stderr, flush=True)
    time.sleep(0.25 * random.random())
"""
COMPARE = """\
#!/usr/bin/env python3
import json, os
size = int(os.environ["PARAM_size"])
print("isthmus:", json.dumps({"total": sum(n * n for n in range(size))}))
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="isthmus-pictures-") as folder:
        Path(folder).chmod(0o711)
        with running_server(Path(folder) / "data") as server, chromium() as browser:
            work(server)
            for name, path, scheme in (
                ("overview", "/console/", "light"),
                ("jobs", "/console/jobs", "light"),
                ("job", "/console/jobs/default/train-resnet", "dark"),
                ("submit", "/console/submit", "light"),
                ("experiment", "/console/experiments/default/sizes", "light"),
            ):
                page = signed_in(browser, server.url, server.token, viewport=SIZE, color_scheme=scheme, locale="en-GB")
                page.goto(path)
                if name == "job":
                    page.get_by_role("img", name="accuracy").wait_for(timeout=60_000)
                    page.wait_for_timeout(20_000)  # something to look at
                page.wait_for_timeout(1000)
                page.screenshot(path=IMAGES / f"console-{name}.png")
                page.context.close()
            phone = {"width": 390, "height": 700}
            page = signed_in(browser, server.url, server.token, viewport=phone, color_scheme="dark", locale="en-GB")
            page.goto("/console/jobs")
            page.wait_for_timeout(1000)
            page.screenshot(path=IMAGES / "console-phone.png")


def work(server: ServerProcess) -> None:
    """Jobs in several states, and a comparison."""
    server.submit("preprocess", "echo", "1200 images")
    server.submit("evaluate-old", "sh", "-c", "echo no such model >&2; exit 2")
    server.submit("sweep", "sh", "-c", "echo $ISTHMUS_ARRAY_INDEX", array={"indices": "0-7"})
    for name in ("preprocess", "evaluate-old", "sweep"):
        server.finished(name)
    spec: dict[str, Any] = {
        "template": {"script": COMPARE, "resources": {"cpus": "1"}},
        "matrix": {"devices": ["cpu"]},
        "parameters": [{"name": "size", "values": [500_000, 1_000_000, 2_000_000, 3_000_000]}],
        "repetitions": 3,
    }
    experiments = f"{GROUP}/namespaces/default/experiments"
    server.request(experiments, {"kind": "Experiment", "metadata": {"name": "sizes"}, "spec": spec})
    eventually(lambda: server.request(f"{experiments}/sizes")["status"]["phase"] == "Succeeded", timeout=120)
    server.submit(
        "train-resnet", script=TRAIN, outputs=["out/*"], streams="Separate", resources={"cpus": "1", "memory": "1Gi"}
    )
    server.submit("evaluate", "true", dependencies=[{"job": "train-resnet"}])
    server.submit("large-model", "true", resources={"cpus": "512"})
    eventually(lambda: server.status("train-resnet")["phase"] == "Running")


main()
