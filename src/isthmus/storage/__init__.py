"""Where files live: the contract (`base`) and one module per place. Belongs here: bytes. Does not: jobs."""
