"""Jobs with deadlines: our optimiser compared with the known methods, on the published setting or your own instances.

Here belong the methods that we compare with, the generator of instances, the simulator, tables, plots and the page that
is made of them (`page`). Not here: the optimiser itself, which is part of the product (`isthmus.scheduling.deadlines`).
"""
