<?php
// Ways to set the status line.
require_once __DIR__ . '/facts.php';
switch (how()) {
    case 'code': http_response_code((int) $_GET['code']); break;
    case 'line': header('HTTP/1.1 404 Gone Fishing'); break;
    case 'line10': header('HTTP/1.0 403 Forbidden'); break;
    case 'line_bare': header('HTTP/1.1 404'); break;
    case 'line_odd': header('HTTP/1.1 799 Custom'); break;
    case 'status': header('Status: 410 Departed'); break;
    case 'status_bare': header('Status: 410'); break;
    case 'third': header('X-Third: 1', true, 418); break;
    case 'line_then_code': header('HTTP/1.1 404 Not Here'); http_response_code(201); break;
    case 'code_then_line': http_response_code(201); header('HTTP/1.1 404 Not Here'); break;
    case 'location': header('Location: /elsewhere'); break;
    case 'location_absolute': header('Location: http://other.example/x?y=1'); break;
    case 'location_relative': header('Location: next.php?x=1'); break;
    case 'location_201': http_response_code(201); header('Location: /made'); break;
    case 'location_301': header('Location: /moved', true, 301); break;
    case 'location_304': header('Location: /x', true, 304); break;
    case 'refresh': header('Refresh: 5; url=/later'); break;
    case 'www_authenticate': header('WWW-Authenticate: Basic realm="probe"'); break;
    case '100': http_response_code(100); break;
    case '204': http_response_code(204); break;
    case '204_body': http_response_code(204); echo 'a body that must not be sent'; return;
    case '304_body': http_response_code(304); header('ETag: "x"'); echo 'a body that must not be sent'; return;
    case 'invalid': fact('set', @http_response_code(99)); break;
}
header('Content-Type: text/plain');
fact('code', http_response_code());
fact('list', headers_list());
