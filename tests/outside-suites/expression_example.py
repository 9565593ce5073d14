"""A path that an expression matches: a request which a `location ~` is asked with."""

import re
import re._parser as parser


def path_of(expression, ignore_case=False):
    """A path that the expression matches, or None: it looks around, or has what Python has not."""
    try:
        text = "".join(map(of, parser.parse(expression)))
        for candidate in (text, "/" + text, "/x" + text):
            if candidate.startswith("/") and re.search(expression, candidate, re.I if ignore_case else 0):
                return candidate
    except (re.error, KeyError, OverflowError):
        pass
    return None


def of(node):
    kind, value = node
    match str(kind):
        case "LITERAL":
            return chr(value)
        case "ANY" | "NOT_LITERAL" | "CATEGORY" if value != ord("x"):
            return "1" if str(value) == "CATEGORY_DIGIT" else "x"
        case "NOT_LITERAL":
            return "y"
        case "IN":
            return one_of(value)
        case "BRANCH":
            return "".join(map(of, value[1][0]))
        case "SUBPATTERN":
            return "".join(map(of, value[-1]))
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            least, most, inner = value
            return "".join(map(of, inner)) * min(max(least, 1), int(most))
        case "ATOMIC_GROUP":
            return "".join(map(of, value))
    return ""


def one_of(items):
    if str(items[0][0]) == "NEGATE":
        refused = re.compile("[" + "".join(map(written, items[1:])) + "]")
        return next(c for c in "xyz1-/" if not refused.match(c))
    kind, value = items[0]
    return chr(value[0]) if str(kind) == "RANGE" else of(items[0])


def written(item):
    kind, value = item
    match str(kind):
        case "RANGE":
            return f"\\x{value[0]:02x}-\\x{value[1]:02x}" if value[1] < 256 else ""
        case "LITERAL":
            return re.escape(chr(value))
    return {"CATEGORY_DIGIT": r"\d", "CATEGORY_WORD": r"\w", "CATEGORY_SPACE": r"\s"}.get(str(value), "")
