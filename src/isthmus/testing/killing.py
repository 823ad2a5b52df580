"""A module as a process that is killed at the nth thing it does to the file system: crash points by enumeration."""

from __future__ import annotations

# Given: the nth, the name of the module, and its arguments. Events are those of Python's audit hooks.
KILLED = """\
import os, runpy, signal, sys
wanted, done = int(sys.argv[1]), 0
EVENTS = {"os.mkdir", "os.rename", "os.symlink", "os.link", "os.remove", "os.rmdir", "os.chmod", "os.utime",
          "os.truncate", "subprocess.Popen", "fcntl.flock"}
def hook(event, args):
    global done
    writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if event in EVENTS or writes:
        done += 1
        if done == wanted:
            os.kill(os.getpid(), signal.SIGKILL)
module = sys.argv[2]
del sys.argv[1:3]
sys.addaudithook(hook)
runpy.run_path(module, run_name="__main__") if module.endswith(".py") else runpy.run_module(module, run_name="__main__")
"""
