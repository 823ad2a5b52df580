"""Machines that join by an outgoing connection: the control plane's side, and what both sides speak.

Belongs here: frames and streams (`frames`, `multiplexing`, both without I/O), a connection in use (`linking`), how an
agent proves who it is (`proving`), what is said in calls (`messages`), which agents are connected (`contacts`) and the
engine over them (`driver`). Does not: what runs on the machine itself (`isthmus.agent`), nor what runs its jobs
(the local engine, which the composition root puts into the agent's process).

- `frames`: one message of the connection: a kind, a stream, a payload
- `multiplexing`: many streams over one connection, each with its own credit; control before data
- `linking`: a connection with its reader, writer and heartbeat
- `contacts`: the connected agents of all sites; who may connect
- `driver`: the contract, each part of it a call
- `incoming`: files on their way from an agent, kept so that a broken transfer goes on where it stopped
"""
