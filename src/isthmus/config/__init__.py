"""Settings: typed, injected, each documented with unit, default and reason. Nothing here reads the environment."""

from .server import ServerSettings

__all__ = ["ServerSettings"]
