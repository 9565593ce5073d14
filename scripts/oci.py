#!/usr/bin/env python3
"""Writes root file systems (tar) as images of an OCI layout, of one layer each.

    scripts/oci.py LAYOUT STAGE TAR [STAGE TAR ...]

The configuration of an image comes from packaging/image/Containerfile: the last lines of each stage are read. HEALTHCHECK
is an addition of Docker to the configuration of OCI, which other engines ignore.
"""
import gzip
import hashlib
import json
import os
import shlex
import sys
from datetime import datetime, timezone

CONTAINERFILE = os.path.join(os.path.dirname(__file__), "../packaging/image/Containerfile")
EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
HASHED = "sha256"
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def seconds(text):
    """Converts a duration such as `10s` to nanoseconds, which Docker uses."""
    return int(text.removesuffix("s")) * 1_000_000_000


def configuration(stage):
    """Returns the `config` of a stage, from the instructions in the Containerfile."""
    config, of_stage = {}, None
    for line in open(CONTAINERFILE):
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            of_stage = rest.split()[-1]
        if of_stage != stage or word in ("", "#", "FROM", "COPY", "RUN"):
            continue
        if word in ("ENTRYPOINT", "CMD"):
            config[word.capitalize()] = json.loads(rest)
        elif word == "USER":
            config["User"] = rest
        elif word == "WORKDIR":
            config["WorkingDir"] = rest
        elif word == "STOPSIGNAL":
            config["StopSignal"] = rest
        elif word == "EXPOSE":
            config.setdefault("ExposedPorts", {})[rest + "/tcp"] = {}
        elif word == "LABEL":
            name, _, value = shlex.split(rest)[0].partition("=")
            config.setdefault("Labels", {})[name] = value
        elif word == "ENV":
            config.setdefault("Env", []).extend(shlex.split(rest))
        elif word == "HEALTHCHECK":
            options, _, command = rest.partition(" CMD ")
            options = dict(option.removeprefix("--").split("=") for option in options.split())
            config["Healthcheck"] = {
                "Test": ["CMD"] + json.loads(command),
                "Interval": seconds(options["interval"]),
                "Timeout": seconds(options["timeout"]),
                "StartPeriod": seconds(options["start-period"]),
                "Retries": int(options["retries"]),
            }
        else:
            sys.exit(f"oci: {CONTAINERFILE}: this script does not support the instruction {word}")
    if "Entrypoint" in config:
        # In a container engine, PATH comes from the base image.
        config["Env"] = [PATH] + config.get("Env", [])
    return config


class Layout:
    """An OCI layout: a directory of blobs, which are named by the hash of their content."""

    def __init__(self, path):
        self.path = path
        os.makedirs(os.path.join(path, "blobs", HASHED))
        self.images = []

    def blob(self, media_type, data):
        digest = hashlib.sha256(data).hexdigest()
        with open(os.path.join(self.path, "blobs", HASHED, digest), "wb") as file:
            file.write(data)
        return {"mediaType": media_type, "digest": f"{HASHED}:{digest}", "size": len(data)}

    def json(self, media_type, value):
        return self.blob(media_type, json.dumps(value, sort_keys=True).encode())

    def image(self, stage, tar):
        kind = "application/vnd.oci.image"
        created = datetime.fromtimestamp(EPOCH, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        with open(tar, "rb") as file:
            root = file.read()
        layer = self.blob(f"{kind}.layer.v1.tar+gzip", gzip.compress(root, 6, mtime=0))
        config = self.json(f"{kind}.config.v1+json", {
            "architecture": ARCHITECTURES[os.uname().machine],
            "os": "linux",
            "created": created,
            "config": configuration(stage),
            "rootfs": {"type": "layers", "diff_ids": [f"{HASHED}:{hashlib.sha256(root).hexdigest()}"]},
            "history": [{"created": created, "created_by": "scripts/image.sh"}],
        })
        media_type = f"{kind}.manifest.v1+json"
        manifest = self.json(media_type, {
            "schemaVersion": 2, "mediaType": media_type, "config": config, "layers": [layer],
        })
        manifest["annotations"] = {"org.opencontainers.image.ref.name": stage}
        self.images.append(manifest)
        print(f"oci: {stage}: {layer['size'] / 1e6:.1f} MB compressed, {len(root) / 1e6:.1f} MB unpacked")

    def finish(self):
        index = {"schemaVersion": 2, "manifests": self.images}
        for name, value in (("index.json", index), ("oci-layout", {"imageLayoutVersion": "1.0.0"})):
            with open(os.path.join(self.path, name), "w") as file:
                json.dump(value, file)


def main():
    layout = Layout(sys.argv[1])
    for stage, tar in zip(sys.argv[2::2], sys.argv[3::2]):
        layout.image(stage, tar)
    layout.finish()


main()
