"""Small tools that know nothing of the domain: ids, time, durations, quantities, locks, tasks, the interpreter.

A helper belongs here when it would make sense in a program about something else. Anything that knows what a
job or a site is belongs elsewhere.
"""
