"""The proxy: leads people to their programs, each on an origin of its own.

Here is who may pass (`passes`, `entering_rules`), what of a request reaches a program and what of its answer a browser
(`headers`), and the relays of HTTP and WebSockets. What a program is and where it runs is not known here: a running job
is reached through `Context.visits`.
"""
