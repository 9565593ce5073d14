"""Evaluates the part of Varnish's configuration language (VCL) that decides whether the ESI tags of a response are
processed and whether the response is stored. Any other statement raises `Unusable` when a request reaches it."""

import re

import rig

TOKEN = re.compile(r'\s+|#[^\n]*|//[^\n]*|/\*.*?\*/|"""(?P<long>.*?)"""|"(?P<text>[^"\n]*)"|(?P<name>[\w.][\w.-]*)'
                   r"|(?P<sign>==|!=|!~|\+=|&&|\|\||[~!{}();=<>+,])", re.S)
COMPARISONS = ("==", "!=", "~", "!~", "<", ">")
# Statements about the stored form of a response, which a client cannot observe, and about the choice of a server, which
# makes no difference here because one origin has the responses of all servers.
WITHOUT_EFFECT = re.compile(r"set (beresp\.do_(gzip|gunzip|stream)|bereq\.backend|req\.backend_hint) |"
                            r'set resp\.filters \+= +debug\.pedantic|std\.cache_req_body |unset (be)?resp\.|unset req\.http\.accept-encoding$')
INTERNALS = ("obj.can_esi", "beresp.filters", "resp.filters", "resp.do_esi")


class Reader:
    def __init__(self, text):
        self.tokens, at = [], 0
        while at < len(text):
            found = TOKEN.match(text, at)
            if not found:
                raise rig.Unusable(f"VCL: {text[at:at + 20]}")
            if found.lastgroup:
                kind = "text" if found.lastgroup == "long" else found.lastgroup
                self.tokens.append((kind, found[found.lastgroup]))
            at = found.end()
        self.at = 0

    def peek(self):
        return self.tokens[self.at][1] if self.at < len(self.tokens) else None

    def take(self, *expected):
        kind, token = self.tokens[self.at]
        if expected and token not in expected:
            raise rig.Unusable(f"VCL: {token}")
        self.at += 1
        return kind, token

    def skips(self, *tokens):
        """Skips the next token if it is one of these. Returns whether it was."""
        found = self.peek() in tokens
        self.at += found
        return found

    def subroutines(self):
        found = {}
        while self.peek() is not None:
            if self.skips("sub"):
                name = self.take()[1]
                found.setdefault(name, []).extend(self.block())
            elif self.skips("import"):
                self.until(";")
            else:
                raise rig.Unusable(f"VCL: {self.peek()}")
        return found

    def block(self):
        self.take("{")
        statements = []
        while not self.skips("}"):
            statements.append(self.statement())
        return statements

    def statement(self):
        if self.skips("if"):
            return self.condition()
        word = self.take()[1]
        if word == "set":
            statement = word, self.take()[1], self.take("=", "+=")[1], self.either()
            self.take(";")
            return statement
        return word, " ".join(self.until(";"))

    def condition(self):
        self.take("(")
        test = self.either()
        self.take(")")
        return "if", test, self.block(), self.otherwise()

    def otherwise(self):
        if self.skips("elif", "elseif", "elsif"):
            return [self.condition()]
        if not self.skips("else"):
            return []
        return [self.condition()] if self.skips("if") else self.block()

    def until(self, end):
        words = []
        while not self.skips(end):
            words.append(self.take()[1])
        return words

    def either(self):
        tests = [self.both()]
        while self.skips("||"):
            tests.append(self.both())
        return tests[0] if len(tests) == 1 else ("or", tests)

    def both(self):
        tests = [self.comparison()]
        while self.skips("&&"):
            tests.append(self.comparison())
        return tests[0] if len(tests) == 1 else ("and", tests)

    def comparison(self):
        left = self.sum()
        if self.peek() not in COMPARISONS:
            return left
        return "compare", left, self.take()[1], self.sum()

    def sum(self):
        parts = [self.take()]
        while self.skips("+"):
            parts.append(self.take())
        return "sum", parts


class Decision:
    """The decisions of a configuration about one request. `read` returns the value of a variable, or None. `nested` says
    that the request is for a fragment."""

    def __init__(self, read, nested):
        self.read, self.nested = read, nested
        self.processed, self.turned_off, self.passed = False, False, False
        # Names of headers that show internals of Varnish.
        self.internals = set()

    def run(self, statements):
        """Runs statements. Returns False if one of them ends the subroutine."""
        for statement in statements:
            match statement:
                case "if", test, then, otherwise:
                    if not self.run(then if self.value(test) else otherwise):
                        return False
                case "set", target, sign, value:
                    self.set(target, sign, value)
                case "return", action if action.replace(" ", "") == "(pass)":
                    self.passed = True
                    return False
                case word, rest if not WITHOUT_EFFECT.match(f"{word} {rest.lower()}"):
                    raise rig.Unusable(f"VCL: {word} {rest}".replace("( ", "(").replace(" )", ")"))
        return True

    def set(self, target, sign, value):
        words = " ".join(text for _, text in value[1]) if value[0] == "sum" else ""
        if target == "beresp.do_esi":
            self.processed = self.value(value)
        elif target == "resp.do_esi" or (target == "req.esi" and not self.nested):
            self.turned_off = not self.value(value)
        elif target == "beresp.uncacheable":
            self.passed = self.value(value)
        elif ".http." in target and words in INTERNALS:
            self.internals.add(target.partition(".http.")[2].lower())
        elif target != "req.esi" and not WITHOUT_EFFECT.match(f"set {target} {sign} {words}"):
            raise rig.Unusable(f"VCL: set {target}")

    def value(self, node):
        match node:
            case "or", tests:
                return any(self.value(test) for test in tests)
            case "and", tests:
                return all(self.value(test) for test in tests)
            case "compare", ("sum", [(_, "req.esi_level")]), ">", ("sum", [(_, "0")]):
                return self.nested
            case "compare", left, sign, right:
                return self.compare(self.value(left), sign, right)
            case "sum", [("name", "true" | "false" as word)]:
                return word == "true"
            case "sum", [part]:
                return part[1] if part[0] == "text" else self.read(part[1])
            case "sum", parts:
                return "".join(text if kind == "text" else self.read(text) or "" for kind, text in parts)

    def compare(self, left, sign, right):
        # A missing header equals no text, so the right side is not evaluated.
        if left is None:
            return sign in ("!=", "!~")
        right = self.value(right)
        match sign:
            case "==":
                return left == right
            case "!=":
                return left != right
            case "~":
                return bool(re.search(right, left))
            case "!~":
                return not re.search(right, left)
        raise rig.Unusable(f"VCL: {sign}")
