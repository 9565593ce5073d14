<?php
// Output buffering and what reaches the client.
require_once __DIR__ . '/facts.php';
header('Content-Type: text/plain');
switch (how()) {
    case '':
        fact('level', ob_get_level());
        fact('status', ob_get_status());
        fact('handlers', ob_list_handlers());
        fact('implicit_flush', ini_get('implicit_flush'));
        break;
    case 'nested':
        ob_start(); echo 'inner'; ob_start(strtoupper(...)); echo 'callback'; ob_end_flush(); $inner = ob_get_clean();
        fact('inner', $inner);
        break;
    case 'unclosed': ob_start(fn ($text) => "[$text]"); echo 'left open'; break;
    case 'callback_phases':
        ob_start(function ($text, $phase) { return "$phase:$text|"; }, 4);
        echo 'abcdef'; echo 'g'; ob_flush(); echo 'h'; ob_end_flush();
        break;
    case 'gzip': ob_start('ob_gzhandler'); echo str_repeat('compressible ', 500); break;
    case 'zlib': ini_set('zlib.output_compression', '1'); echo str_repeat('compressible ', 500); break;
    case 'none': break;
    case 'blank': echo ''; break;
    case 'binary': header('Content-Type: application/octet-stream'); for ($i = 0; $i < 256; $i++) { echo chr($i); } break;
    case 'large': for ($i = 0; $i < 3000; $i++) { echo str_repeat(chr(65 + $i % 26), 1000); } break;
    case 'large_length': header('Content-Length: 3000000'); for ($i = 0; $i < 3000; $i++) { echo str_repeat('x', 1000); } break;
    case 'flushes': for ($i = 0; $i < 5; $i++) { echo "part $i\n"; ob_flush(); flush(); } break;
    case 'no_buffer': while (ob_get_level()) { ob_end_clean(); } echo 'straight'; fact('sent', headers_sent()); break;
    case 'clean_all': echo 'discarded'; while (ob_get_level()) { ob_end_clean(); } echo 'kept'; break;
    case 'stream': $out = fopen('php://output', 'w'); fwrite($out, 'through a stream'); fclose($out); break;
    case 'readfile': fact('bytes', readfile(__DIR__ . '/dir/plain.txt')); break;
    case 'passthru': passthru('echo from a program'); break;
    case 'destructor': $GLOBALS['kept'] = new class { function __destruct() { echo "destructed\n"; } }; echo "body\n"; break;
    case 'rewrite': output_add_rewrite_var('sid', 'x1'); header('Content-Type: text/html'); echo '<a href="/here">l</a><form method="post" action="/f"></form>'; break;
    case 'print': echo print('p'), print_r([1], true), sprintf('%05.1f', 3.14159); break;
}
