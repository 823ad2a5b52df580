"""OpenID Connect: people of other institutes' providers, recognised by tokens that those sign.

Belongs here: what a token must be, what its claims give, and asking providers for their keys. Does not: tokens of ours
(`authenticating.py`).
"""
