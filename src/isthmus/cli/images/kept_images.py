"""`isthmus images`: what sites keep of container images; fetching them ahead of time, and removing them."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from isthmus._kit.clock import parse_timestamp, utcnow
from isthmus._kit.ids import suffix
from isthmus.cli.app import group
from isthmus.cli.completion import complete_sites
from isthmus.cli.failures import say
from isthmus.cli.options import Everywhere, Format, Namespace, Output, Token, Url, client_for, format_of
from isthmus.cli.tables import relative, size, table, write, write_names
from isthmus.client.requests import Object
from isthmus.errors import Invalid, IsthmusError, NotFound

app = group("Container images that sites keep.")
Site = Annotated[
    str | None, typer.Option("--site", metavar="SITE", help="Only at this site.", autocompletion=complete_sites)
]
_DIGITS = 12


@app.callback(invoke_without_command=True)
def images(
    context: typer.Context,
    site: Site = None,
    everywhere: Everywhere = False,
    namespace: Namespace = None,
    output: Output = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """List the container images that sites keep of your jobs; `pull` fetches one ahead of time, `rm` removes one.

    Local sites keep images. Kubernetes nodes look after theirs by themselves.

    \b
    Examples:
      isthmus images
      isthmus images -o json
      isthmus images pull python:3.12 --site local
      isthmus images rm python:3.12
    """
    if context.invoked_subcommand is not None:
        return
    form = format_of(output)
    with client_for(url, token, namespace) as client:
        if site:
            client.get("sites", site)  # raises NotFound, with what was probably meant
        answer = client.images(everywhere=everywhere)
    found = [image for image in answer["items"] if site in (None, image["site"])]
    silent = [name for name in answer["unavailable"] if site in (None, name)]
    if form in (Format.JSON, Format.YAML):
        write({**answer, "items": found, "unavailable": silent}, form)
        return
    if silent:
        say(f"not connected, and not asked: {', '.join(silent)}")
    if form is Format.NAME:
        write_names(str(image["digest"]) for image in found)
        return
    if not found:
        say("no images are kept")
        return
    rows = [
        [
            str(image["name"]),
            str(image["site"]),
            str(image["digest"]).removeprefix("sha256:")[:_DIGITS],
            size(image["bytes"]),
            "now" if image["inUse"] else f"{relative(parse_timestamp(image['lastUsed']), utcnow())} ago",
            "yes" if image["private"] else "no",
        ]
        for image in found
    ]
    table(["IMAGE", "SITE", "DIGEST", "SIZE", "USED", "PRIVATE"], rows)


@app.command("pull")
def pull(
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="Such as python:3.12.")],
    site: Site = None,
    namespace: Namespace = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Have an image fetched ahead of time: by a job that does nothing in it, at each site that runs images.

    \b
    Examples:
      isthmus images pull python:3.12
      isthmus images pull ghcr.io/org/tool:1.2 --site local
    """
    from isthmus.images.references import is_file

    if is_file(image):
        raise Invalid("a file is sent along with each job, and kept when it first runs; name an image of a registry")
    with client_for(url, token, namespace) as client:
        sites = [client.get("sites", site)] if site else client.list("sites")
        wanted = [s["metadata"]["name"] for s in sites if _runs_images(s)]
        if site and not wanted:
            raise NotFound(f"site {site} does not run container images; see isthmus site {site}")
        if not wanted:
            raise NotFound("no site runs container images; see isthmus sites")
        handles = []
        for name in wanted:
            job = f"pull-{suffix()}"
            spec: Object = {"image": image, "command": ["/bin/sh", "-c", "exit 0"], "ttlAfterFinished": "1h"}
            spec |= {"placement": {"sites": [name]}, "resources": {"cpus": "0.1", "memory": "64Mi"}}
            client.create({"apiVersion": "isthmus.dev/v1", "kind": "Job", "metadata": {"name": job}, "spec": spec})
            handles.append((name, job))
        failed = [name for name, job in handles if not _pulled(name, image, client.wait(job).status)]
    if failed:
        raise typer.Exit(1)


def _runs_images(site: Object) -> bool:
    return "images" in ((site.get("status") or {}).get("abilities") or ())


def _pulled(site: str, image: str, status: Object) -> bool:
    if status.get("phase") == "Succeeded":
        sys.stdout.write(f"{site}: {image} {status.get('image') or ''}\n".rstrip() + "\n")
        return True
    say(f"{site}: {status.get('message') or status.get('phase')}", "31")
    return False


@app.command("rm")
def remove(
    wanted: Annotated[list[str], typer.Argument(metavar="IMAGE…", help="Names, or digests or their beginnings.")],
    site: Site = None,
    everywhere: Everywhere = False,
    namespace: Namespace = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Remove images that no job uses. One that jobs of other tenants used stays for them.

    \b
    Examples:
      isthmus images rm python:3.12
      isthmus images rm sha256:9f86d081884c --site local
    """
    with client_for(url, token, namespace) as client:
        kept = [image for image in client.images(everywhere=everywhere)["items"] if site in (None, image["site"])]
        failed = False
        for word in wanted:
            chosen = [image for image in kept if _is_meant(image, word)]
            if not chosen:
                raise NotFound(f"no image {word!r} is kept; isthmus images lists them")
            for image in chosen:
                try:
                    client.remove_image(image["site"], image["digest"], everywhere=everywhere)
                    sys.stdout.write(f"{image['site']}: {image['name']} removed\n")
                except IsthmusError as error:
                    failed = True
                    say(error.message, "31")
    if failed:
        raise typer.Exit(1)


def _is_meant(image: Object, word: str) -> bool:
    from isthmus.images.references import parse_reference

    digest, bare = str(image["digest"]), word.removeprefix("sha256:")
    if len(bare) >= _DIGITS and digest.removeprefix("sha256:").startswith(bare):
        return True
    if word == image["name"]:
        return True
    name = str(image["name"]).partition("@")[0]
    try:
        return name == str(parse_reference(word)).partition("@")[0]
    except Invalid:
        return False
