"""Which work goes where and when: a snapshot in, a plan out. Pure: no I/O, no clock, no randomness of its own."""
