"""Machines with agents: each in a network of its own, whose one cable leads through a proxy to the control plane.

- `layout`: where everything is
- `shapes`: what a link can be like, in words and in numbers
- `link_proxy`: the HTTP proxy that agents go through; it shapes links where the kernel cannot
- `machines`: one machine
- `fleet`: all of them: up, down, links
"""
