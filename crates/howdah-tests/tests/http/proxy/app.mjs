// A Node application of the kind that sites run beside PHP, with responses, events, WebSocket and uploads.
//
// Usage: node app.mjs NAME LISTEN [h2c | CERTIFICATE KEY]
//
// LISTEN is a port of 127.0.0.1 (0 for any free one), or the path of a socket.
import http from 'node:http';
import http2 from 'node:http2';
import https from 'node:https';
import fs from 'node:fs';
import crypto from 'node:crypto';

const [name, listen, protocol, key] = process.argv.slice(2);
const listeners = new Set();
let sick = false;

function answer(req, res) {
  const path = req.url.split('?')[0];
  if (path === '/up') {
    res.writeHead(sick ? 500 : 200).end();
  } else if (path === '/sick') {
    sick = true;
    res.end('sick');
  } else if (path === '/events') {
    res.writeHead(200, { 'Content-Type': 'text/event-stream' });
    const send = (text) => res.write(`data: ${text}\n\n`);
    send('hello');
    listeners.add(send);
    res.on('close', () => listeners.delete(send));
  } else if (path === '/publish') {
    collect(req).then((body) => {
      for (const send of listeners) send(body.toString());
      res.end(String(listeners.size));
    });
  } else if (path === '/verify') {
    // An authorization service: a cookie names the user, and a client without the cookie is redirected to a login page.
    const user = /user=(\w+)/.exec(req.headers.cookie ?? '')?.[1];
    const told = ['method', 'uri', 'host', 'for'].map((it) => req.headers[`x-forwarded-${it}`]).join(' ');
    if (user === 'ann') {
      res.writeHead(200, { 'Remote-User': user, 'X-Told': `${req.method} ${told} ${req.headers['content-length']}` }).end('ignored');
    } else if (user) {
      res.writeHead(403, { 'Content-Type': 'text/plain' }).end(`not for ${user}`);
    } else {
      res.writeHead(302, { Location: `https://login.example/?rd=${encodeURIComponent(req.headers['x-forwarded-uri'])}`, 'Set-Cookie': 'a=b' }).end();
    }
  } else if (path === '/by-url') {
    // Decides by the URL, which it takes in the same order as /api/verify of Authelia: X-Original-URL, then
    // X-Forwarded-*.
    const it = (name) => req.headers[name] ?? '';
    const url = it('x-original-url') || `${it('x-forwarded-proto')}://${it('x-forwarded-host')}${it('x-forwarded-uri')}`;
    const sent = ['x-original-uri', 'x-rewrite-url', 'x-auth-request-redirect'].some((name) => name in req.headers);
    // The raw path, in which dot segments are not resolved.
    const raw = url.replace(/^https?:\/\/[^/]*/, '').split('?')[0];
    const allowed = !sent && raw.startsWith('/public/') && it('x-forwarded-uri').startsWith('/public/');
    res.writeHead(allowed ? 200 : 401).end();
  } else if (path === '/cgi-status') {
    res.writeHead(200, { Status: '301 Moved', Location: '/elsewhere' }).end('found');
  } else if (path === '/hint') {
    res.writeEarlyHints({ link: '</a.css>; rel=preload' });
    res.end('hinted');
  } else if (path === '/big') {
    res.writeHead(200, { 'Content-Type': 'application/octet-stream' });
    const piece = Buffer.alloc(65536, 'x');
    let left = 160;
    const more = () => {
      while (left > 0) {
        left -= 1;
        if (!res.write(piece)) return res.once('drain', more);
      }
      res.end();
    };
    more();
  } else if (path === '/pieces') {
    // Reports every piece when it arrives, before the body has ended.
    res.writeHead(200, { 'Content-Type': 'text/plain' });
    req.on('data', (piece) => res.write(`${piece.length}\n`));
    req.on('end', () => res.end('end\n'));
    req.on('error', () => {});
  } else {
    collect(req).then((body) => {
      const { method, url, headers } = req;
      const text = JSON.stringify({ name, method, url, headers, length: body.length, body: body.toString().slice(0, 100) });
      res.writeHead(200, { 'Content-Type': 'application/json', Server: 'Node', 'X-Of-Node': name });
      res.end(text);
    });
  }
}

async function collect(req) {
  const pieces = [];
  for await (const piece of req) pieces.push(piece);
  return Buffer.concat(pieces);
}

// Implements the part of RFC 6455 that text messages below 64 KiB need.
function upgrade(req, socket) {
  if (req.url === '/refused') {
    return socket.end('HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno');
  }
  const key = req.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
  const accept = crypto.createHash('sha1').update(key).digest('base64');
  socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n' +
    `Sec-WebSocket-Accept: ${accept}\r\n\r\n`);
  const send = (text) => {
    const body = Buffer.from(text);
    const head = body.length < 126 ? Buffer.from([0x81, body.length])
      : Buffer.from([0x81, 126, body.length >> 8, body.length & 255]);
    socket.write(Buffer.concat([head, body]));
  };
  listeners.add(send);
  socket.on('close', () => listeners.delete(send));
  socket.on('error', () => {});
  let unread = Buffer.alloc(0);
  socket.on('data', (data) => {
    unread = Buffer.concat([unread, data]);
    for (;;) {
      if (unread.length < 2) return;
      let length = unread[1] & 127;
      let at = 2;
      if (length === 126) {
        if (unread.length < 4) return;
        length = unread.readUInt16BE(2);
        at = 4;
      }
      if (unread.length < at + 4 + length) return;
      const mask = unread.subarray(at, at + 4);
      const text = Buffer.from(unread.subarray(at + 4, at + 4 + length));
      for (let i = 0; i < length; i += 1) text[i] ^= mask[i & 3];
      const opcode = unread[0] & 15;
      unread = unread.subarray(at + 4 + length);
      if (opcode === 8) return socket.end(Buffer.from([0x88, 0]));
      if (opcode === 1) send(`${name} echoes ${text}`);
    }
  });
}

const server = key ? https.createServer({ cert: fs.readFileSync(protocol), key: fs.readFileSync(key) }, answer)
  : protocol === 'h2c' ? http2.createServer(answer) : http.createServer(answer);
server.on('upgrade', upgrade);
const ready = () => console.log(`ready ${server.address().port ?? listen}`);
if (listen.startsWith('/')) server.listen(listen, ready);
else server.listen(Number(listen), '127.0.0.1', ready);
