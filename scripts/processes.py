"""What processes have used, for the scripts here that measure: not a program."""
import pathlib, subprocess


def of(masters):
    """The processes with these numbers and all below them."""
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
    """Seconds that all threads have run whose name begins so: the scheduler's own count, since the tick's misses
    short turns."""
    spent = 0
    for pid in pids:
        for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
            try:
                if (task / "comm").read_text().startswith(thread):
                    spent += int((task / "schedstat").read_text().split()[0])
            except OSError:
                pass  # It has ended.
    return spent / 1e9
