"""The same from Python: run, watch, fetch.

With a server up (`isthmus up`), run it as `python examples/python_client.py`.
"""

from isthmus import Client

SCRIPT = """\
import pathlib
print("working", flush=True)
pathlib.Path("answer.txt").write_text("42")
"""


def main() -> None:
    """Run a script as a job, show its output as it comes, and read a file that it wrote."""
    with Client() as client:
        job = client.run(script="#!/usr/bin/env python3\n" + SCRIPT, files=None, outputs=["answer.txt"])
        for chunk in job.logs(follow=True):
            print(chunk.decode(), end="")
        print("phase:", job.wait().phase)
        print("answer:", job.read_output("answer.txt").decode())


if __name__ == "__main__":
    main()
