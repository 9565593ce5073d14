"""Reads Varnish's test language (VTC): the words of a file, and the exchanges of a scripted server. Runs nothing. Only
the commands and options that ESI tests need are supported; all others raise `Unusable`."""

import dataclasses
import re

import rig

ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}


def commands(text):
    """Yields the commands of a text as lists of words, without the quotation marks or braces around a word."""
    command, at = [], 0
    while at < len(text):
        if text[at] == "\n":
            if command:
                yield command
            command, at = [], at + 1
        elif text.startswith("\\\n", at):
            at += 2
        elif text[at].isspace():
            at += 1
        elif text[at] == "#":
            at = line_end(text, at)
        else:
            word, at = read_word(text, at)
            command.append(word)
    if command:
        yield command


def line_end(text, at):
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def read_word(text, at):
    """Returns the word at a position, and the position after it."""
    if text[at] == "{":
        depth, end = 1, at + 1
        while depth and end < len(text):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        return text[at + 1:end - 1], end
    if text[at] == '"':
        quoted = re.compile(r'"((?:[^"\\]|\\.)*)"', re.S).match(text, at)
        return re.sub(r"\\(.)", lambda m: ESCAPES.get(m[1], m[0]), quoted[1], flags=re.S), quoted.end()
    bare = re.compile(r"[^\s]+").match(text, at)
    return bare[0], bare.end()


@dataclasses.dataclass
class Expectation:
    """`expect SUBJECT OPERATOR VALUE`."""
    subject: str
    operator: str
    value: str

    def holds(self, read):
        """Returns whether the expectation holds. `read` returns the value of a subject, or `<undef>`."""
        found = read(self.subject)
        wanted = read(self.value) if re.match(r"(req|resp)\.", self.value) else self.value
        match self.operator:
            case "==":
                return found == wanted
            case "!=":
                return found != wanted
            case "~":
                return bool(re.search(wanted, found))
            case "!~":
                return not re.search(wanted, found)
        raise rig.Unusable(f"the operator {self.operator}")

    def __str__(self):
        return f"{self.subject} {self.operator} {self.value!r}"


@dataclasses.dataclass
class Message:
    """A request or a response. It is complete if its body has the length that its header announces."""
    status: int = 200
    method: str = "GET"
    url: str = "/"
    proto: str = "HTTP/1.1"
    headers: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    body: bytes = b""
    compressed: bool = False
    complete: bool = True
    # The bytes of all `send` commands.
    raw: str = ""

    def header(self, name):
        values = [value for own, value in self.headers if own.lower() == name.lower()]
        return ", ".join(values) if values else "<undef>"

    def read_options(self, words):
        """Applies the options of `txreq` or `txresp`."""
        words = iter(words)
        for option in words:
            match option:
                case "-status":
                    self.status = int(next(words))
                case "-url":
                    self.url = next(words)
                case "-req" | "-method":
                    self.method = next(words)
                case "-proto":
                    self.proto = next(words)
                case "-hdr":
                    self.add_header(next(words))
                case "-body":
                    self.body = next(words).encode("latin1")
                case "-gzipbody":
                    self.body, self.compressed = next(words).encode("latin1"), True
                case "-bodylen":
                    self.body = filler(int(next(words)))
                case "-gzipresidual" | "-gziplevel":
                    next(words)
                case "-nolen" | "-nodate":
                    pass
                case _:
                    raise rig.Unusable(f"the option {option}")
        if (length := self.header("content-length")).isdecimal():
            self.complete = int(length) == len(self.body)
        return self

    def add_header(self, line):
        name, colon, value = line.partition(":")
        if colon:
            self.headers.append((name.strip(), value.strip()))
        else:
            # PHP cannot send a header without a colon, so the response is cut off instead. Both make it invalid.
            self.complete = False

    def add_chunk(self, words):
        """Applies `chunked TEXT` or `chunkedlen LENGTH`. The chunk with length 0 completes the body."""
        self.complete = words == ["chunkedlen", "0"]
        self.body += words[1].encode("latin1") if words[0] == "chunked" else filler(int(words[1]))

    def add_raw(self, text):
        """Applies `send`, which sends bytes of an HTTP/1.0 response. The response ends with the connection."""
        self.raw += text
        head, end, body = self.raw.replace("\r\n", "\n").partition("\n\n")
        if end:
            lines = head.split("\n")
            self.status = int(lines[0].split()[1])
            self.headers = []
            for line in lines[1:]:
                self.add_header(line)
            self.body = body.encode("latin1")


def rooted(url):
    """Returns a target with the slash that HTTP requires and Varnish does not."""
    return url if url.startswith(("/", "http://")) else "/" + url


def filler(length):
    """Returns a body for a test that gives only its length."""
    return (b"0123456789abcde\n" * (length // 16 + 1))[:length]


@dataclasses.dataclass
class Exchange:
    """A request that a server expects, and its response."""
    expectations: list[Expectation] = dataclasses.field(default_factory=list)
    response: Message = dataclasses.field(default_factory=Message)
    seconds: float = 0

    def fits(self, request, subjects):
        """Returns whether all expectations about these subjects hold; None if there are none."""
        own = [e for e in self.expectations if e.subject in subjects]
        return all(e.holds(request.read) for e in own) if own else None


def server(text):
    """Returns the exchanges of a server, in order."""
    exchanges = []
    for words in commands(text):
        match words[0]:
            case "rxreq":
                exchanges.append(Exchange())
            case "expect":
                wanted = Expectation(*words[1:4])
                if wanted.subject == "req.url":
                    wanted.value = rooted(wanted.value)
                exchanges[-1].expectations.append(wanted)
            case "txresp":
                exchanges[-1].response.read_options(words[1:])
            case "chunked" | "chunkedlen":
                exchanges[-1].response.add_chunk(words)
            case "send":
                exchanges[-1].response.add_raw(words[1])
            case "delay":
                exchanges[-1].seconds += min(float(words[1]), 1)
            case _:
                raise rig.Unusable(f"a server's {words[0]}")
    return exchanges
