<?php
// What header() and its relatives put on the wire.
require_once __DIR__ . '/facts.php';
switch (how()) {
    case 'replace': header('X-A: 1'); header('X-A: 2'); header('x-a: 3'); break;
    case 'append': header('X-A: 1'); header('X-A: 2', false); header('X-A: 3', false); break;
    case 'remove': header('X-A: 1'); header('X-B: 2'); header_remove('x-a'); break;
    case 'remove_all': header('X-A: 1'); header_remove(); break;
    case 'powered': header_remove('X-Powered-By'); break;
    case 'newline': header("X-A: 1\r\nX-Injected: 2"); break;
    case 'nul': header("X-A: 1\0X"); break;
    case 'blank': header('X-Blank:'); header('X-Spaces:   padded   '); break;
    case 'colonless': header('NoColonHere'); break;
    case 'utf8': header('X-Utf8: grüße'); header("X-Latin: gr\xfc\xdfe"); break;
    case 'long': header('X-Long: ' . str_repeat('l', 3000)); break;
    case 'many': for ($i = 0; $i < 50; $i++) { header("X-Many-$i: $i"); } break;
    case 'cookies':
        setcookie('a', 'one two;three');
        setcookie('b', 'x', ['expires' => 2000000000, 'path' => '/p', 'domain' => 'example.org', 'secure' => true, 'httponly' => true, 'samesite' => 'Strict']);
        setrawcookie('c', 'raw+value');
        setcookie('d', '');
        setcookie('e[k]', 'array');
        break;
    case 'type': header('Content-Type: application/json'); break;
    case 'type_text': header('Content-Type: text/css'); break;
    case 'type_charset': header('Content-Type: text/html; charset=iso-8859-1'); break;
    case 'type_none': ini_set('default_charset', ''); break;
    case 'type_mimetype': ini_set('default_mimetype', 'application/x-probe'); break;
    case 'length': header('Content-Length: 5'); echo '12345'; return;
    case 'own_server': header('Server: mine'); header('Date: Thu, 01 Jan 1970 00:00:00 GMT'); break;
    case 'encoding': header('Content-Encoding: identity'); break;
    case 'connection': header('Connection: close'); break;
    case 'keep_alive': header('Connection: keep-alive'); break;
    case 'transfer': header('Trailer: X-T'); break;
    case 'cache': header('Cache-Control: max-age=60'); header('ETag: "probe"'); header('Last-Modified: Sat, 01 Jan 2000 00:00:00 GMT'); header('Vary: Accept'); header('Vary: Cookie', false); break;
    case 'late':
        echo str_repeat('x', 5000), "\n";
        fact('sent', headers_sent($file, $line));
        fact('where', [basename($file), $line]);
        header('X-Late: 1');
        break;
    case 'flushed':
        echo "early\n";
        ob_flush();
        flush();
        fact('sent', headers_sent());
        break;
    case 'accel': header('X-Accel-Expires: 0'); header('X-Accel-Charset: utf-8'); break;
    case 'link': header('Link: </style.css>; rel=preload', false); header('Link: </x.js>; rel=preload', false); break;
    case 'callback':
        header_register_callback(function () {
            header('X-From-Callback: yes');
            header_remove('X-Gone');
            header('X-List: ' . implode('|', array_map(fn ($line) => strtok($line, ':'), headers_list())));
        });
        header('X-Gone: 1');
        break;
}
if (!str_starts_with(how(), 'type')) {
    header('Content-Type: text/plain');
}
fact('list', headers_list());
if (how() !== 'many' && function_exists('apache_response_headers')) {
    fact('response_headers', apache_response_headers());
}
