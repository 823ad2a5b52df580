"""OpenID Connect: people of other institutes' providers, recognised by tokens that those sign.

Belongs here: what a token must be, what its claims give, and asking providers for their keys and tokens. Does not:
pages (`console/pages/provider_signing.py`) and the command line's part (`client/device_login.py`).
"""
