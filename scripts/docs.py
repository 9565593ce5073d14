#!/usr/bin/env python3
"""Builds the site of the documentation with mdBook.

    scripts/docs.py [--repository URL] [--out DIRECTORY]
    scripts/docs.py --install

The documents' links work on a code host, so this script changes as little as possible. It copies the documents into one
directory, with the paths that they have in the repository, and does three things there:

- `docs/site/SUMMARY.md` becomes the summary of the whole book, and its line `<!-- pages of FOLDER/ -->` becomes the pages of
  that folder of `docs`, in the order in which its README.md links to them;
- a link to a file that is not a document leads to the repository at URL;
- a document that the summary does not name is an error.

mdBook is installed in the version below to $HOWDAH_TOOLS (by default ~/.cache/howdah) unless it is already installed.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

MDBOOK = "0.5.4"
ROOT = pathlib.Path(__file__).resolve().parent.parent
# The site's own files: its settings, style and summary.
SITE = ROOT / "docs" / "site"
# Documents outside of `docs`, by their path in the repository.
MORE = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "SECURITY.md", "ARCHITECTURE.md",
        "tests/outside-suites/results.md"]
LINK = re.compile(r"(\]\()([^)#\s]+)")


def main():
    words = argparse.ArgumentParser(description="Builds the site of the documentation.")
    words.add_argument("--repository", default="https://howdah.example.org/source",
                       help="the address of the repository on its code host, for edit links and links to the source")
    words.add_argument("--out", type=pathlib.Path, default=target() / "docs", help="the directory to which the site is written, in `site`")
    words.add_argument("--install", action="store_true", help="only install mdBook")
    options = words.parse_args()
    if options.install:
        installed_mdbook()
        return
    repository = options.repository.rstrip("/")

    mdbook = installed_mdbook()
    source = options.out / "source"
    shutil.rmtree(options.out, ignore_errors=True)
    documents = stage(source, repository)
    (source / "SUMMARY.md").write_text(summary(documents))
    for name in ["book.toml", "site.css"]:
        shutil.copy(SITE / name, source)
    environment = os.environ | {
        "MDBOOK_OUTPUT__HTML__GIT_REPOSITORY_URL": repository,
        "MDBOOK_OUTPUT__HTML__EDIT_URL_TEMPLATE": f"{repository}/edit/main/{{path}}",
    }
    built = subprocess.run([mdbook, "build", source], env=environment, text=True, check=False,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    # mdBook reports some mistakes, such as an unclosed tag, as a warning only.
    if built.returncode != 0 or "WARN" in built.stdout or "ERROR" in built.stdout:
        sys.exit(f"{built.stdout}docs: mdBook found the mistakes above")
    print(f"docs: {len(documents)} documents; the site is {options.out}/site/index.html")


def target():
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def installed_mdbook():
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    tools = pathlib.Path(os.environ.get("HOWDAH_TOOLS") or cache / "howdah")
    # This file is written last, so that an interrupted installation begins again.
    done = tools / f"installed-mdbook-{MDBOOK}"
    if not done.exists():
        print(f"docs: installing mdBook {MDBOOK} to {tools} (some minutes)", flush=True)
        # Without CARGO_TARGET_DIR, because cargo would compile it into the project's own target directory. Without the
        # web server and the file watcher, which a build does not need; and without optimisation, which would take three
        # times as long: the site is built in seconds either way.
        environment = {name: value for name, value in os.environ.items() if name != "CARGO_TARGET_DIR"}
        subprocess.run([os.environ.get("CARGO", "cargo"), "install", "--quiet", "--locked", "--debug", "--root", tools,
                        "--no-default-features", "--features", "search", f"mdbook@{MDBOOK}"],
                       env=environment | {"CARGO_PROFILE_DEV_DEBUG": "0"}, check=True)
        done.touch()
    return tools / "bin" / "mdbook"


def stage(source, repository):
    """Copies the documents and their pictures to `source`, and returns the documents' paths."""
    files = [pathlib.Path(name) for name in MORE]
    files += sorted(path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*") if path.suffix in [".md", ".png", ".svg"])
    files.remove(SITE.relative_to(ROOT) / "SUMMARY.md")
    for file in files:
        (source / file).parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".md":
            text = (ROOT / file).read_text()
            (source / file).write_text(outside_code(text, lambda line: absolute(line, file, files, repository)))
        else:
            shutil.copy(ROOT / file, source / file)
    return [file for file in files if file.suffix == ".md"]


def outside_code(text, change):
    """Applies `change` to the lines of a text that are not in a block of code."""
    lines, code = [], False
    for line in text.splitlines():
        code ^= line.lstrip().startswith("```")
        lines.append(line if code else change(line))
    return "\n".join(lines) + "\n"


def absolute(line, file, files, repository):
    """Makes the links of a line that lead to files outside of the site lead to the repository."""
    def change(link):
        path = link[2]
        if ":" in path:
            return link[0]
        inside = pathlib.Path(os.path.normpath(file.parent / path))
        if inside in files:
            # mdBook calls the page of a README.md index.html, but leaves the links to it as they are.
            return re.sub(r"README\.md$", "index.md", link[0])
        if not (ROOT / inside).exists():
            sys.exit(f"docs: {file}: a link leads to {path}, which does not exist")
        kind = "tree" if (ROOT / inside).is_dir() else "blob"
        return f"{link[1]}{repository}/{kind}/main/{inside}"
    return LINK.sub(change, line)


def summary(documents):
    """Returns the summary of the book, whose links begin at the repository's root."""
    lines = []
    for line in (SITE / "SUMMARY.md").read_text().splitlines():
        folder = re.fullmatch(r"<!-- pages of (\w+)/ -->", line)
        lines += pages_of(folder[1], documents) if folder else [line]
    text = "\n".join(lines) + "\n"
    text = LINK.sub(lambda link: link[1] + os.path.normpath(f"docs/site/{link[2]}"), text)
    listed = [link[2] for link in LINK.finditer(text)]
    missing = [str(file) for file in documents if str(file) not in listed]
    if missing:
        sys.exit(f"docs: docs/site/SUMMARY.md does not name {', '.join(missing)}")
    return text


def pages_of(folder, documents):
    """Returns the lines of the summary for a folder of `docs`: its README.md, and below it the other pages."""
    readme = ROOT / "docs" / folder / "README.md"
    if not readme.exists():
        return []
    order = [link[2] for link in LINK.finditer(readme.read_text())]
    pages = [file.name for file in documents if file.parent == pathlib.Path("docs", folder) and file.name != "README.md"]
    unlisted = [page for page in pages if page not in order]
    if unlisted:
        sys.exit(f"docs: {readme.relative_to(ROOT)} does not link to {', '.join(unlisted)}")
    pages.sort(key=order.index)
    entry = "- [{}](../{}/{})".format
    return [entry(title(readme), folder, "README.md")] + [
        "    " + entry(title(readme.parent / page), folder, page) for page in pages]


def title(document):
    """Returns a document's first heading without marks of code."""
    heading = next(line for line in document.read_text().splitlines() if line.startswith("# "))
    return heading.removeprefix("# ").replace("`", "")


if __name__ == "__main__":
    main()
