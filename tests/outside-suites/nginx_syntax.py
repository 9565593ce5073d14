"""nginx's configuration as a tree: what `nginx_corpora` changes in a file so that it can be served here, it
changes in the tree. Words keep their quotes, so that a file is written as it was read."""

import dataclasses
import re

WORD = re.compile(r"""\s+|\#[^\n]*|(?P<word>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[{};]|(?:\\.|\$\{|[^\s;{\\])+)""",
                  re.S)


@dataclasses.dataclass
class Directive:
    name: str
    words: list[str]
    block: list["Directive"] | None = None


def parse(text):
    words = (m["word"] for m in WORD.finditer(text) if m["word"])
    return block(words, True)


def block(words, outermost=False):
    found, directive = [], []
    for word in words:
        if word == ";":
            if directive:
                found.append(Directive(directive[0], directive[1:]))
        elif word == "{":
            if not directive:
                raise ValueError("a block without a name")
            found.append(Directive(directive[0], directive[1:], block(words)))
        elif word == "}":
            if outermost or directive:
                raise ValueError("a closing brace too many, or a directive without an end")
            return found
        else:
            directive.append(word)
            continue
        directive = []
    if not outermost or directive:
        raise ValueError("a block or a directive without an end")
    return found


def write(directives, indent=""):
    lines = []
    for one in directives:
        head = indent + " ".join([one.name, *one.words])
        if one.block is None:
            lines.append(head + ";\n")
        else:
            lines += [head + " {\n", write(one.block, indent + "    "), indent + "}\n"]
    return "".join(lines)


def everywhere(directives):
    """Each directive, a block's own before what stands in it."""
    for one in directives:
        yield one
        if one.block is not None:
            yield from everywhere(one.block)


def plain(word):
    """A word without its quotes."""
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "\"'" else word
