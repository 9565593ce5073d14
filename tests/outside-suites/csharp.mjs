// Makes JavaScript of the little C# that Http11Probe's suites are written in: object initialisers,
// lambdas, patterns, string interpolation. A case whose translation does not run is left out by name.

const ESCAPES = { r: "\r", n: "\n", t: "\t", 0: "\0", a: "\x07", b: "\b", f: "\f", v: "\v", e: "\x1b" };

/** Splits source into code with `§N§` for each string, and the strings as JavaScript. Drops comments. */
function lift(source) {
    const strings = [];
    let code = "", at = 0;
    const keep = (text) => { code += `§${strings.push(text) - 1}§`; };
    while (at < source.length) {
        const two = source.slice(at, at + 2);
        if (two === "//") {
            at = source.indexOf("\n", at);
            if (at < 0) break;
        } else if (two === "/*") {
            at = source.indexOf("*/", at) + 2;
        } else if (two === '$"') {
            const [text, end] = interpolated(source, at + 2);
            keep(text);
            at = end;
        } else if (source[at] === '"' || source[at] === "'") {
            const quote = source[at];
            const [text, end] = literal(source, at + 1, (c) => c === quote);
            keep(JSON.stringify(text));
            at = end + 1;
            if (source.startsWith("u8", at)) {
                keep(`.bytes()`);
                at += 2;
            }
        } else {
            code += source[at++];
        }
    }
    return [code, strings];
}

function literal(source, at, ends) {
    let text = "";
    while (!ends(source[at])) {
        if (source[at] !== "\\") {
            text += source[at++];
            continue;
        }
        const hex = /^\\(?:x([0-9A-Fa-f]{1,4})|u([0-9A-Fa-f]{4}))/.exec(source.slice(at, at + 6));
        if (hex) {
            text += String.fromCharCode(parseInt(hex[1] ?? hex[2], 16));
            at += hex[0].length;
        } else {
            text += ESCAPES[source[at + 1]] ?? source[at + 1];
            at += 2;
        }
    }
    return [text, at];
}

function interpolated(source, at) {
    const parts = [];
    for (;;) {
        let [text, end] = literal(source, at, (c) => c === '"' || c === "{" || c === "}");
        while (source[end] !== '"' && source[end + 1] === source[end]) {
            const [more, next] = literal(source, end + 2, (c) => c === '"' || c === "{" || c === "}");
            text += source[end] + more;
            end = next;
        }
        parts.push(JSON.stringify(text));
        if (source[end] === '"') return [`(${parts.join("+")})`, end + 1];
        let depth = 1, close = end + 1;
        while (depth > 0) {
            if (source[close] === '"') close = literal(source, close + 1, (c) => c === '"')[1];
            depth += { "{": 1, "}": -1 }[source[close]] ?? 0;
            close++;
        }
        parts.push(`(${translate(source.slice(end + 1, close - 1))})`);
        at = close;
    }
}

/** `x is PATTERN`, as `x is >= 200 and < 300` or `x is (< 200 or 404)`: a test of `x`. */
function patterns(code) {
    const subject = /((?:\w+\??\.)*\w+(?:\[\w+\])?) is (?=[\d<>(§]|not |ConnectionState)/g;
    let out = "", at = 0;
    for (let match; (match = subject.exec(code)); ) {
        const [test, end] = pattern(code, subject.lastIndex);
        out += `${code.slice(at, match.index)}((v) => ${test})(${match[1]})`;
        at = subject.lastIndex = end;
    }
    return out + code.slice(at);
}

function pattern(code, at) {
    let out = "";
    for (;;) {
        const atom = /^\s*(not )?\s*(>=|<=|<|>)?\s*(\(|[\d_]+|§\d+§|ConnectionState\.\w+)/.exec(code.slice(at));
        const [whole, not, sign, value] = atom;
        at += whole.length;
        out += not ? "!" : "";
        if (value === "(") {
            const [inner, end] = pattern(code, at);
            out += `(${inner})`;
            at = end + /^\s*\)/.exec(code.slice(end))[0].length;
        } else {
            out += `(v ${sign ?? "==="} ${value})`;
        }
        const joint = /^\s*(and|or)\b/.exec(code.slice(at));
        if (!joint) return [out, at];
        out += joint[1] === "and" ? " && " : " || ";
        at += joint[0].length;
    }
}

export function translate(source) {
    let [code, strings] = lift(source);
    const value = String.raw`(?:\w+\??\.)*\w+(?:\[\w+\])?`;
    const type = String.raw`(?:byte\[\]|(?:string|int|char|bool|var|object)(?:\[\])?\??|List<[\w<>]+>)`;
    code = code
        .replace(new RegExp(`(${value}) is not null`, "g"), "($1) != null")
        .replace(new RegExp(`(${value}) is null`, "g"), "($1) == null");
    code = patterns(code)
        .replace(/\bnew byte\[\]\s*\{([^}]*)\}/g, "[$1]")
        .replace(/\bnew byte\[/g, "newBytes[").replace(/newBytes\[([^\]]*)\]/g, "Buffer.alloc($1)")
        .replace(/\bnew string\(/g, "newString(")
        .replace(/\bnew (?:TestCase|SequenceTestCase|ExpectedBehavior|SequenceStep|SequenceSendPart)\s*(?=\{)/g, "")
        .replace(/\bnew List<[\w<>]+>\(\)/g, "[]")
        .replace(/\bnew Dictionary<.*>\(\)/g, "new Dictionary()")
        .replace(/([{,]\s*)([A-Z]\w*)\s*=\s(?!=)/g, "$1$2: ")
        .replace(/int\.TryParse\((\w+),[^;]*?out var (\w+)\)/g, "!isNaN($2 = parseInt($1, 16))")
        .replace(/([\w.]+)\.TryGetValue\(([^,()]+), out var (\w+)\)/g, "(($3 = $1.TryGetValue($2)) !== undefined)")
        .replace(/(\w+)\[([^[\]]*?)\.\.(\^?)([^[\]]*?)\]/g, (_, of, from, back, to) =>
            `${of}.slice(${from || 0}${to ? `, ${back ? "-" : ""}${to}` : ""})`)
        .replace(/foreach \(\s*(?:var|string)\s+(\w+) in /g, "for (const $1 of ")
        .replace(/foreach \(var \((\w+), (\w+)\) in /g, "for (const [$1, $2] of ")
        .replace(/\bvar \(([^()]*)\) = /g, "let [$1] = ")
        .replace(/\breturn \(((?:\w+, )+\w+)\);/g, "return [$1];")
        .replace(/\bconst (?:string|int) /g, "const ")
        .replace(/, out _\)/g, ")")
        .replace(/\bparams\s+/g, "...")
        .replace(new RegExp(`(^|[;{}(]\\s*)${type}\\s+(?=\\w+\\s*(?:=|;|in\\b))`, "gm"), "$1let ")
        .replace(/\(byte\)|\(char\)|\(int\)/g, "")
        .replace(/(\w)!(?=[.\[)])/g, "$1");
    return code.replace(/§(\d+)§/g, (_, n) => strings[n]);
}

/** The suite's private helpers, as JavaScript functions. */
export function helpers(source) {
    const found = [];
    const head = /\n {4}private static (?:\([^)]*\)|[\w<>?\[\], ]+?) (\w+)\(([^)]*)\)\s*(=>|\{)/g;
    for (let match; (match = head.exec(source)); ) {
        const names = match[2].split(",").filter((p) => p.trim())
            .map((p) => (p.includes("params ") ? "..." : "") + p.trim().split(/\s+/).at(-1));
        const end = match[3] === "=>" ? source.indexOf(";\n", head.lastIndex) : source.indexOf("\n    }", head.lastIndex);
        const body = source.slice(head.lastIndex, end);
        found.push([match[1], names, translate(match[3] === "=>" ? `return ${body};` : body)]);
    }
    return found;
}

/** Source of each `yield return`. */
export function yields(source) {
    return [...source.matchAll(/\n {8}yield return new (?:Sequence)?TestCase\n([\s\S]*?\n {8}\});/g)].map((m) => m[1]);
}
