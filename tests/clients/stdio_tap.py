"""Stands between a client and a program that it starts on its standard streams: passes on what comes, and keeps it.

The arguments are a folder and the program. Each run makes a folder in there with what went in and came out, the program's log, and,
once it has ended, its status.
"""

import os
import signal
import subprocess
import sys
import threading
import time

# What writes down outlives this process, which an impatient client may kill before the program has ended.
if writer := os.fork():
    signal.signal(signal.SIGTERM, lambda *_: os.kill(writer, signal.SIGTERM))
    os._exit(os.waitstatus_to_exitcode(os.waitpid(writer, 0)[1]) & 255)
os.setsid()

run = os.path.join(sys.argv[1], str(time.time_ns()))
os.mkdir(run)


def kept(name):
    return open(os.path.join(run, name), "wb", buffering=0)


program = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=kept("log"), bufsize=0)
signal.signal(signal.SIGTERM, lambda *_: program.terminate())


def pass_on(source, target, copy):
    while piece := os.read(source, 65536):
        copy.write(piece)
        try:
            os.write(target, piece)
        except BrokenPipeError:
            pass  # whoever does not read has it in the copy
    os.close(target)


threading.Thread(target=pass_on, args=(0, program.stdin.fileno(), kept("in")), daemon=True).start()
pass_on(program.stdout.fileno(), 1, kept("out"))
status = program.wait()
with open(os.path.join(run, "ending"), "w") as ending:
    ending.write(str(status))
os.rename(os.path.join(run, "ending"), os.path.join(run, "status"))  # so that nobody reads half of it
os._exit(status & 255)
