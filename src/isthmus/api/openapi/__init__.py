"""The description of the API, made from the register of kinds and cached as bytes.

Three readers, three forms: `version2` (kubectl up to 1.26, as JSON and, through `protobuf`, as gnostic documents),
`version3` (kubectl from 1.27 on, one document per group and version), and `whole` (people and their tools: every
path of the server in one OpenAPI 3.1 document). `operations` lists what can be done with each kind, for all three.
Belongs here: descriptions. Does not: what they describe.
"""

from .serving import routes

__all__ = ["routes"]
