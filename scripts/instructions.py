#!/usr/bin/env python3
"""Counts the instructions of a request on the hot paths and compares them with benchmarks/instructions.json.

The program crates/howdah-server/examples/instructions.rs sends requests through the whole front in one thread.
callgrind counts the instructions of two runs with different numbers of requests; their difference, divided by the
number of additional requests, is the cost of a request, that of the client included. Unlike a time, it does not depend
on the speed or the load of the machine.

    scripts/instructions.py [CARGO ARGUMENTS]

Exits with 1 if a count differs by more than 2 % from the file, in either direction, and with 2 if it cannot be
determined. HOWDAH_BLESS=1 rewrites the file. The counts belong to the version of Rust and the Debian release with
which they were taken, which the file names.
"""

import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
EXPECTED = os.path.join(ROOT, "benchmarks", "instructions.json")
KINDS = ("hello", "file", "page")
FEW_REQUESTS = 200
MANY_REQUESTS = 1200
TOLERANCE_PERCENT = 2.0


def main():
    program = build(sys.argv[1:])
    counts = {kind: per_request(program, kind) for kind in KINDS}
    measured = {"environment": environment(), "instructions_per_request": counts}
    if os.environ.get("HOWDAH_BLESS") == "1":
        with open(EXPECTED, "w", encoding="utf-8") as file:
            file.write(json.dumps(measured, indent=2) + "\n")
        for kind, count in counts.items():
            print(f"instructions: {kind:6} {count:8}")
        print(f"instructions: wrote {os.path.relpath(EXPECTED, ROOT)}")
        return 0
    with open(EXPECTED, encoding="utf-8") as file:
        return compare(measured, json.load(file))


def compare(measured, expected):
    """Prints both counts of each kind of request and returns the exit status."""
    differing = []
    for kind, count in measured["instructions_per_request"].items():
        before = expected["instructions_per_request"][kind]
        percent = (count - before) * 100 / before
        print(f"instructions: {kind:6} {count:8} per request, {before:8} expected, {percent:+.2f} %")
        if abs(percent) > TOLERANCE_PERCENT:
            differing.append(kind)
    if not differing:
        return 0
    print(
        f"instructions: {', '.join(differing)}: more than {TOLERANCE_PERCENT:g} % different from benchmarks/instructions.json. "
        "If the change is intended, run `HOWDAH_BLESS=1 make instructions` and commit the file with the reason for the change.",
        file=sys.stderr,
    )
    for name, before in expected["environment"].items():
        now = measured["environment"].get(name)
        if now != before:
            print(f"instructions: the expected counts were taken with {name} {before}, these with {now}", file=sys.stderr)
    return 1


def build(arguments):
    """Builds the program and returns its path.

    rustix reads the addresses that the kernel passed to the process and finds the vDSO, which valgrind has removed from
    its memory. The feature makes rustix ask the C library, whose list valgrind has corrected.
    """
    command = [os.environ.get("CARGO", "cargo"), "build", "--profile", "quick", "-p", "howdah-server", "--example", "instructions"]
    command += ["--features", "rustix/use-libc-auxv", "--message-format=json-render-diagnostics"]
    built = subprocess.run(command + arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode != 0:
        sys.exit(2)
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    return [message["executable"] for message in messages if message.get("executable")][-1]


def per_request(program, kind):
    few, many = (total(program, kind, requests) for requests in (FEW_REQUESTS, MANY_REQUESTS))
    return round((many - few) / (MANY_REQUESTS - FEW_REQUESTS))


def total(program, kind, requests):
    """Returns the number of instructions of a whole run."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, kind, str(requests)]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    collected = re.search(r"Collected : (\d+)", run.stdout)
    if run.returncode != 0 or not collected:
        print(f"{run.stdout}\ninstructions: `{' '.join(command)}` failed with status {run.returncode}", file=sys.stderr)
        sys.exit(2)
    return int(collected.group(1))


def environment():
    def output(command):
        return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()

    with open("/etc/os-release", encoding="utf-8") as file:
        release = dict(line.strip().split("=", 1) for line in file if "=" in line)
    return {
        "rustc": output(["rustc", "--version"]).split()[1],
        "valgrind": output(["valgrind", "--version"]).removeprefix("valgrind-"),
        "system": f"{release.get('ID', '')} {release.get('VERSION_ID', '')}".replace('"', "").strip(),
        "architecture": os.uname().machine,
    }


sys.exit(main())
