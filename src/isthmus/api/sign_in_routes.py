"""What somebody must know before signing in: the providers that are accepted. Open to everybody, nothing secret."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import Response
from starlette.routing import Route

from .responses import json_response

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from isthmus.resources.identityproviders import IdentityProvider

    from .context import Context

PROVIDERS = "/.well-known/isthmus/identity-providers"


def routes(context: Context) -> list[BaseRoute]:
    """The one."""

    async def providers(_: Request) -> Response:
        found = sorted(context.authenticator.providers.offered(), key=lambda provider: provider.name)
        return json_response({"items": [_offer(provider) for provider in found]})

    return [Route(PROVIDERS, providers, methods=["GET"])]


def _offer(provider: IdentityProvider) -> dict[str, Any]:
    spec = provider.spec
    offer = {"name": provider.name, "issuer": spec.issuer, "clientId": spec.client_id, "scopes": spec.scopes}
    return {**offer, **({"authorities": spec.authorities} if spec.authorities else {})}
