"""Jobs with deadlines on the sites there are: which goes where, with which devices, when, and who makes room.

Here belong expected run times (`estimates`), what a site has free when (`timelines`), the ways to run a job (`ways`),
the plan over all of them (`planning`, with a proposal of the optimiser in `deadlines`), and its explanation
(`explaining`). Not here: jobs without deadlines (`placement`), where profiles are kept, and carrying a plan out
(`reconcilers`).
"""
