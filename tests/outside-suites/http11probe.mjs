// Runs Http11Probe's suites, translated from their C#, against a server on loopback, and prints a
// JSON list of id, verdict and note. Follows the suite's TestRunner: a step is sent, an answer is
// read to the end of its head and what comes within a moment after it, then the connection's state.

import fs from "node:fs";
import net from "node:net";
import { helpers, translate, yields } from "./csharp.mjs";

const [port, ...files] = process.argv.slice(2);
const ctx = { Host: "127.0.0.1", Port: +port, HostHeader: `127.0.0.1:${port}` };
const PATIENCE = 5000, SETTLE = 150;
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// .NET, as far as the suites use it.
const ascii = (text) => Buffer.from([...text].map((c) => (c.charCodeAt(0) > 127 ? 63 : c.charCodeAt(0))));
const fold = (text, how) => (/IgnoreCase/.test(how ?? "") ? text.toLowerCase() : text);
const trim = (text, chars, start, end) => {
    const drop = (c) => (chars.length ? chars.includes(c) : /\s/.test(c));
    let a = 0, b = text.length;
    while (start && a < b && drop(text[a])) a++;
    while (end && b > a && drop(text[b - 1])) b--;
    return text.slice(a, b);
};
const add = (prototype, methods) => {
    for (const [name, value] of Object.entries(methods)) {
        Object.defineProperty(prototype, name, { value, configurable: true, writable: true });
    }
};
const length = { get() { return this.length; }, configurable: true };
for (const prototype of [String.prototype, Array.prototype, Uint8Array.prototype]) {
    Object.defineProperty(prototype, "Length", length);
}
add(String.prototype, {
    Contains(s, how) { return fold(String(this), how).includes(fold(s, how)); },
    StartsWith(s, how) { return fold(String(this), how).startsWith(fold(s, how)); },
    EndsWith(s, how) { return fold(String(this), how).endsWith(fold(s, how)); },
    Equals(s, how) { return fold(String(this), how) === fold(s, how); },
    IndexOf(s, from, how) {
        const [at, rule] = typeof from === "number" ? [from, how] : [0, from];
        return fold(String(this), rule).indexOf(fold(s, rule), at);
    },
    Trim(...chars) { return trim(String(this), chars, true, true); },
    TrimStart(...chars) { return trim(String(this), chars, true, false); },
    TrimEnd(...chars) { return trim(String(this), chars, false, true); },
    Split(by) { return this.split(by).filter((part) => part); },
    Replace(a, b) { return this.replaceAll(a, b); },
    ToLowerInvariant() { return this.toLowerCase(); },
    ToString() { return String(this); },
    bytes() { return Buffer.from(String(this)); },
});
add(Number.prototype, { ToString() { return String(this); } });
add(Array.prototype, {
    Add(x) { this.push(x); }, All(f) { return this.every(f); }, Any(f) { return f ? this.some(f) : this.length > 0; },
    Count(f) { return this.filter(f ?? (() => true)).length; }, Select(f) { return this.map(f); },
    Where(f) { return this.filter(f); }, ToArray() { return this; }, ToList() { return this; },
    FirstOrDefault(f) { return this.find(f ?? (() => true)); }, Contains(x) { return this.includes(x); },
    CopyTo(to, at) { Buffer.from(this).copy(to, at); },
});
add(Uint8Array.prototype, { CopyTo(to, at) { Buffer.from(this).copy(to, at); } });
class Dictionary {
    constructor() { this.map = new Map(); }
    TryGetValue(name) { return this.map.get(name.toLowerCase())?.Value; }
    ContainsKey(name) { return this.map.has(name.toLowerCase()); }
    *[Symbol.iterator]() { yield* this.map.values(); }
}
class Random {
    constructor(seed) { this.state = seed; }
    NextBytes(bytes) {
        for (let n = 0; n < bytes.length; n++) {
            this.state = (Math.imul(this.state, 1103515245) + 12345) >>> 0;
            bytes[n] = this.state >>> 16;
        }
    }
}
class StringBuilder {
    text = "";
    Append(s) { this.text += s; return this; }
    AppendLine(s) { this.text += `${s ?? ""}\n`; return this; }
    ToString() { return this.text; }
}
const words = (...names) => Object.fromEntries(names.map((n) => [n, n]));
const range = (a, b) => (status) => status >= a && status <= b;
const known = {
    ctx, Dictionary, Random, StringBuilder,
    MakeRequest: ascii,
    newString: (c, n) => c.repeat(n),
    Encoding: {
        ASCII: { GetBytes: ascii, GetByteCount: (s) => s.length, GetString: (b) => b.toString("latin1") },
        UTF8: { GetBytes: (s) => Buffer.from(s), GetByteCount: (s) => Buffer.byteLength(s) },
        Latin1: { GetBytes: (s) => Buffer.from(s, "latin1") },
    },
    string: {
        Join: (by, list) => list.join(by), IsNullOrEmpty: (s) => !s, IsNullOrWhiteSpace: (s) => !s?.trim(),
        Equals: (a, b, how) => fold(a, how) === fold(b, how),
    },
    Enumerable: {
        Range: (from, n) => Array.from({ length: n }, (_, i) => from + i), Repeat: (x, n) => Array(n).fill(x),
    },
    StringComparison: words("Ordinal", "OrdinalIgnoreCase"),
    StringSplitOptions: words("RemoveEmptyEntries"),
    System: { Globalization: { CultureInfo: {}, DateTimeStyles: {} } },
    DateTime: { TryParseExact: (s) => /^\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT$/.test(s) },
    TimeSpan: { FromMilliseconds: (n) => n, FromSeconds: (n) => n * 1000, Zero: 0 },
    TestVerdict: words("Pass", "Fail", "Warn", "Skip", "Error"),
    ConnectionState: words("Open", "ClosedByServer", "TimedOut", "Error"),
    TestCategory: new Proxy({}, { get: (_, name) => name }),
    RfcLevel: new Proxy({}, { get: (_, name) => name }),
    StatusCodeRange: {
        Exact: (n) => range(n, n), Range: range,
        Range2xx: range(200, 299), Range4xx: range(400, 499), Range4xxOr5xx: range(400, 599),
    },
};

function parse(received) {
    const text = received.toString("latin1");
    const [line, ...rest] = text.split("\n");
    const status = /^(\S+) (\d+) ?(.*)/.exec(line.trimEnd());
    if (!status || !text.includes("\n")) return null;
    const headers = new Dictionary();
    for (const field of rest.map((l) => l.replace(/\r$/, ""))) {
        if (field === "") break;
        const colon = field.indexOf(":");
        if (colon <= 0) continue;
        const name = field.slice(0, colon).trim(), value = field.slice(colon + 1).trim();
        const before = headers.map.get(name.toLowerCase());
        headers.map.set(name.toLowerCase(), { Key: name, Value: before ? `${before.Value}, ${value}` : value });
    }
    const end = text.indexOf("\r\n\r\n");
    const body = end >= 0 && end + 4 < text.length ? text.slice(end + 4, end + 4100) : null;
    return {
        StatusCode: +status[2], ReasonPhrase: status[3], HttpVersion: status[1], Headers: headers,
        Body: body, RawResponse: text,
    };
}

class Client {
    received = Buffer.alloc(0);
    state = "Open";
    constructor() {
        this.socket = net.connect(ctx.Port, ctx.Host);
        this.socket.on("data", (piece) => { this.received = Buffer.concat([this.received, piece]); this.wake?.(); });
        this.socket.on("end", () => { this.state = "ClosedByServer"; this.wake?.(); });
        this.socket.on("error", () => { this.state = "ClosedByServer"; this.wake?.(); });
    }
    async answer() {
        const end = Date.now() + PATIENCE;
        let timedOut = false;
        while (this.state === "Open" && this.received.indexOf("\r\n\r\n") < 0 && !timedOut) {
            const left = end - Date.now();
            if (left <= 0) timedOut = true;
            else await Promise.race([new Promise((wake) => { this.wake = wake; }), sleep(left)]);
        }
        if (this.received.indexOf("\r\n\r\n") >= 0) await sleep(SETTLE);
        const taken = this.received;
        this.received = Buffer.alloc(0);
        return [parse(taken), timedOut ? "TimedOut" : this.state];
    }
}

async function single(test) {
    const client = new Client();
    client.socket.write(Buffer.from(test.PayloadFactory(ctx)));
    const [response, state] = await client.answer();
    client.socket.destroy();
    const want = test.Expected;
    const note = response ? `status ${response.StatusCode}` : `no answer, ${state}`;
    const verdict = () => {
        if (want.CustomValidator) return want.CustomValidator(response, state);
        if (want.ExpectedConnectionState && state === want.ExpectedConnectionState) return "Pass";
        if (response == null) return want.AllowConnectionClose ? "Pass" : "Fail";
        return want.ExpectedStatus?.(response.StatusCode) ? "Pass" : "Fail";
    };
    return { verdict: verdict(), note };
}

async function sequence(test) {
    const client = new Client();
    const results = [];
    let state = "Open";
    for (const step of test.Steps) {
        if (state !== "Open") {
            results.push({ Label: step.Label, Executed: false, Response: null, ConnectionState: state });
            continue;
        }
        const make = step.DynamicPayloadFactory ? (c) => step.DynamicPayloadFactory(c, results) : step.PayloadFactory;
        for (const part of step.SendPartsFactory?.(ctx) ?? [{ PayloadFactory: make }]) {
            client.socket.write(Buffer.from(part.PayloadFactory(ctx)));
            await sleep(part.DelayAfter ?? 0);
            if (client.state !== "Open") break;
        }
        let response;
        [response, state] = await client.answer();
        results.push({ Label: step.Label, Executed: true, Response: response, ConnectionState: state });
    }
    client.socket.destroy();
    const note = results.map((r) => (r.Executed ? (r.Response?.StatusCode ?? `none, ${r.ConnectionState}`) : "closed"));
    return { verdict: test.Validator(results), note: `answers: ${note.join(", ")}` };
}

/** Sloppy mode on purpose: `out var x` becomes an assignment to a global. */
const evaluate = (code, scope) => new Function(...Object.keys(scope), code)(...Object.values(scope));

const tests = [];
for (const file of files) {
    const source = fs.readFileSync(file, "utf8").replaceAll("\r\n", "\n");
    const scope = { ...known };
    let prelude = "";
    for (const [name, names, body] of helpers(source)) {
        if (name in known) continue;
        const code = `function ${name}(${names.join(", ")}) {${body}}\n`;
        try { new Function(code); prelude += code; } catch { /* what needs it fails by name below */ }
    }
    for (const text of yields(source)) {
        const id = /Id = "([^"]+)"/.exec(text)[1];
        try {
            tests.push({ id, test: evaluate(`${prelude}return (${translate(text)});`, scope) });
        } catch (error) {
            tests.push({ id, problem: `not translated: ${error.message}` });
        }
    }
}
const results = new Array(tests.length);
let next = 0;
async function worker() {
    for (let n; (n = next++) < tests.length; ) {
        const { id, test, problem } = tests[n];
        try {
            results[n] = problem ? { id, verdict: "Skip", note: problem }
                : { id, ...(await (test.Steps ? sequence(test) : single(test))) };
        } catch (error) {
            const translation = error instanceof TypeError || error instanceof ReferenceError;
            results[n] = { id, verdict: translation ? "Skip" : "Error", note: `${error.message}` };
        }
    }
}
await Promise.all(Array.from({ length: 8 }, worker));
console.log(JSON.stringify(results));
