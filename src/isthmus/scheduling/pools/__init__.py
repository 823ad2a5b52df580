"""How many machines each pool should have, and which of them move: a snapshot in, moves with reasons out. Pure."""
