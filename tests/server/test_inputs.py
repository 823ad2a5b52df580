"""Jobs that take the outputs of others along."""

from __future__ import annotations

import urllib.error

import pytest

from isthmus.testing.servers import ServerProcess, eventually

pytestmark = pytest.mark.real


def takes(job: str, into: str = ".", condition: str = "Succeeded") -> list[dict[str, str]]:
    return [{"job": job, "condition": condition, "outputsInto": into}]


def test_outputs_lie_over_what_was_sent_and_outlive_the_job_that_left_them(server: ServerProcess) -> None:
    server.submit("maker", "sh", "-c", "echo made > a.txt; mkdir d; ln -s ../a.txt d/link", outputs=["**/*", "a.txt"])
    assert server.finished("maker")["outputs"]["count"] == 2
    script = "#!/bin/sh\ncat in/here/a.txt in/here/d/link; test $ISTHMUS_ATTEMPT = 1\n"
    again = {"limit": 1, "backoff": "1s"}
    server.submit("taker", script=script, dependencies=takes("maker", "in/here/"), retries=again)
    eventually(lambda: server.status("taker").get("dependencies"))
    server.request(f"{server.jobs()}/maker", method="DELETE")
    assert server.finished("taker")["phase"] == "Succeeded"
    assert server.output("taker") == "made\nmade\n"


def test_of_an_array_each_element_has_a_folder_and_each_element_of_an_array_has_all(server: ServerProcess) -> None:
    server.submit("parts", "sh", "-c", "echo $ISTHMUS_ARRAY_INDEX > p", array={"indices": "0-2"}, outputs=["p"])
    words = ("sh", "-c", "cat 0/p 1/p 2/p")
    server.submit("wholes", *words, array={"indices": "7,8"}, dependencies=takes("parts"))
    assert server.finished("wholes")["array"]["succeeded"] == 2
    assert server.output("wholes-8") == "0\n1\n2\n"


def test_nothing_to_take_is_said_at_once(server: ServerProcess) -> None:
    server.submit("empty", "true", outputs=["none"])
    server.submit("hungry", "cat", "none", dependencies=takes("empty", condition="Finished"))
    status = server.finished("hungry")
    assert (status["phase"], status["reason"]) == ("Cancelled", "DependencyFailed")
    assert "job empty left no outputs to take" in status["message"]


def test_files_that_cannot_lie_together_are_refused(server: ServerProcess) -> None:
    server.submit("file", "sh", "-c", "echo x > same", outputs=["same"])
    server.submit("folder", "sh", "-c", "mkdir same; echo x > same/f", outputs=["same/*"])
    server.submit("both", "true", dependencies=[*takes("file"), *takes("folder")])
    status = server.finished("both")
    assert (status["phase"], status["reason"]) == ("Failed", "FilesMissing")
    assert "'same/f' lies below 'same'" in status["message"]


@pytest.mark.parametrize("into", ["/etc", "..", "a/../../b", "a//b", "./a", ""])
def test_a_folder_outside_is_refused(server: ServerProcess, into: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="422"):
        server.submit("outside", "true", dependencies=takes("x", into))


def test_outputs_of_a_job_that_only_began_are_refused(server: ServerProcess) -> None:
    with pytest.raises(urllib.error.HTTPError, match="422"):
        server.submit("early", "true", dependencies=takes("x", condition="Started"))
