"""The device flow (RFC 8628): a code that a person confirms in any browser, while this program asks now and then."""

from __future__ import annotations

import time
from collections.abc import Callable

from isthmus.errors import Unavailable

from .provider_answers import (
    DEVICE_GRANT,
    DeviceCode,
    ProviderAddresses,
    ProviderOffer,
    ProviderTokens,
    next_pause,
    read_addresses,
    read_code,
    read_tokens,
    too_late,
)
from .provider_asking import ask

_LONGEST_PAUSE = 60.0


def find_addresses(offer: ProviderOffer) -> ProviderAddresses:
    """Where the provider does what."""
    answer = ask(offer.issuer.rstrip("/") + "/.well-known/openid-configuration", offer.authorities)
    return read_addresses(offer, answer.status, answer.document)


def ask_for_code(offer: ProviderOffer, addresses: ProviderAddresses) -> DeviceCode:
    """A code to show."""
    form = {"client_id": offer.client_id, "scope": addresses.scope}
    answer = ask(addresses.device, offer.authorities, form)
    return read_code(offer, answer.status, answer.document)


def await_tokens(
    offer: ProviderOffer,
    addresses: ProviderAddresses,
    code: DeviceCode,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> ProviderTokens:
    """The tokens, once the code is confirmed; raises Unauthenticated if it is refused, or not confirmed in time.

    A provider that cannot be reached meanwhile is asked again, each time after twice as long.
    """
    form = {"grant_type": DEVICE_GRANT, "device_code": code.secret, "client_id": offer.client_id}
    pause, until = code.pause, clock() + code.seconds
    while clock() + pause <= until:
        sleep(pause)
        try:
            answer = ask(addresses.token, offer.authorities, form)
        except Unavailable:
            pause = min(pause * 2, _LONGEST_PAUSE)
            continue
        if answer.status == 200:
            return read_tokens(offer.issuer, answer.document)
        pause = next_pause(offer, answer.document, pause)
    raise too_late(offer.issuer)
