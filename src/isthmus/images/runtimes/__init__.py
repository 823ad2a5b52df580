"""What runs a program in an unpacked image at a site, as the person whose program it is: one module for each runtime.

Pure: a runtime says which words start a container, and somebody else starts them. `probing` is what a site is asked,
and what its answer means. Local sites have a view of their own (`engines/local/image_view`), because they may be root.
"""

from .base import Bind, ContainerView, Runtime
from .bubblewrap import Bubblewrap
from .charliecloud import Charliecloud
from .podman import Podman
from .proot import Proot

RUNTIMES: dict[str, Runtime] = {runtime.name: runtime for runtime in (Charliecloud(), Bubblewrap(), Podman(), Proot())}
"""By name, in the order in which they are tried where a site does not set one: those first that change least."""

__all__ = ["RUNTIMES", "Bind", "ContainerView", "Runtime"]
