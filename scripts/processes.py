"""Measures the resources that processes have used. This is a module for the benchmark scripts, not a program."""
import pathlib, subprocess


def of(masters):
    """Returns the ids of these processes and of all their descendants."""
    listing = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    children = {}
    for line in listing.splitlines():
        pid, parent = map(int, line.split())
        children.setdefault(parent, []).append(pid)
    found, left = [], list(masters)
    while left:
        found.append(left.pop())
        left += children.get(found[-1], [])
    return found


def cpu(pids, thread=""):
    """Returns the CPU time, in seconds, of all threads whose names begin with `thread`. It is the scheduler's own count,
    because the count by clock ticks misses short turns."""
    spent = 0
    for pid in pids:
        for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
            try:
                if (task / "comm").read_text().startswith(thread):
                    spent += int((task / "schedstat").read_text().split()[0])
            except OSError:
                pass  # The process has exited.
    return spent / 1e9
