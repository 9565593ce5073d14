#!/usr/bin/env python3
"""What open dashboards cost a loaded server: the CPU time of the status listener's thread beside that of
the whole front and its PHP, with and without them. CPU times, so other work of the machine matters little.

    scripts/dashboards-cost.py target/quick/howdah [--dashboards 50] [--seconds 30]

Needs wrk and howdah-php beside howdah. Everything is on loopback, in a temporary directory, and ends by itself.
"""
import argparse, os, re, signal, socket, subprocess, tempfile, threading, time
import processes

arguments = argparse.ArgumentParser()
arguments.add_argument("howdah")
arguments.add_argument("--dashboards", type=int, default=50)
arguments.add_argument("--seconds", type=int, default=30)
arguments.add_argument("--children", type=int, default=32)
arguments = arguments.parse_args()


def measure(master):
    """Seconds of CPU time of the status thread, and of all processes of the server."""
    pids = processes.of([master])
    return processes.cpu(pids, thread="status-"), processes.cpu(pids)


def watch(port, stop, received):
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    connection.settimeout(5)
    while not stop.is_set():
        received.append(len(connection.recv(1 << 20)))
    connection.close()


with tempfile.TemporaryDirectory() as directory:
    os.mkdir(f"{directory}/site")
    with open(f"{directory}/site/index.php", "w") as file:
        file.write("<?php echo str_repeat('x', 1000), $_SERVER['REMOTE_PORT'];")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with open(f"{directory}/howdah.toml", "w") as file:
        file.write(f'[status]\nlisten = "127.0.0.1:{port}"\n')
    server = subprocess.Popen(
        [arguments.howdah, "serve", f"{directory}/site", "--listen", "127.0.0.1:0", "--config", f"{directory}/howdah.toml",
         "--children", str(arguments.children), "--control", f"{directory}/control.sock"],
        stderr=subprocess.PIPE, text=True)
    try:
        address = None
        for line in server.stderr:
            found = re.search(r"listening on (http://\S+)", line)
            address = found.group(1) if found else address
            if "status on" in line:
                break
        print(f"{arguments.howdah}, {os.cpu_count()} cores, {arguments.children} children, {arguments.dashboards} dashboards, {arguments.seconds} s each")
        for dashboards in (0, arguments.dashboards, 0, arguments.dashboards):
            stop, received = threading.Event(), []
            watchers = [threading.Thread(target=watch, args=(port, stop, received)) for _ in range(dashboards)]
            for watcher in watchers:
                watcher.start()
            load = subprocess.Popen(["wrk", "-t1", "-c64", f"-d{arguments.seconds + 2}s", address], stdout=subprocess.PIPE, text=True)
            time.sleep(1)
            begun, before = time.monotonic(), measure(server.pid)
            time.sleep(arguments.seconds)
            after, took = measure(server.pid), time.monotonic() - begun
            report = load.communicate()[0]
            stop.set()
            for watcher in watchers:
                watcher.join()
            status, whole = (b - a for a, b in zip(before, after))
            rate = re.search(r"Requests/sec:\s+(\S+)", report).group(1)
            print(f"{dashboards:3} dashboards: {rate} requests/s; status thread {status * 1e3 / took:.2f} ms of CPU a second,"
                  f" {100 * status / whole:.3f} % of the server's; {sum(received) / took / 1e3:.0f} KB/s sent")
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()
