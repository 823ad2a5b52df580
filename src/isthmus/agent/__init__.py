"""The process on a machine that joins by an outgoing connection.

Belongs here: joining (`joining`), what the machine keeps (`places`, `contents`), what its owner permits
(`owner_rules`), the connection and its return after every break (`connecting`), and answering the control plane's
calls (`answering`). Does not: the protocol, which both sides share (`isthmus.engines.agent`), nor what runs the
jobs: an engine is handed in by the composition root.
"""
