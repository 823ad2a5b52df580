"""Signing in with an OpenID Connect provider from a terminal: the device flow, and the file that keeps its tokens.

Belongs here: asking a provider for tokens, renewing and revoking them. Does not: whether a token is good, which the
server alone decides.
"""
