<?php
// Ways a script ends, and what the client and the status line are told.
require_once __DIR__ . '/facts.php';
header('Content-Type: text/plain');
if (isset($_GET['quiet'])) {
    ini_set('display_errors', '0');
}
if (isset($_GET['after'])) {
    echo "output before\n";
}
if (isset($_GET['flushed'])) {
    echo "flushed before\n";
    ob_flush();
    flush();
}
switch (how()) {
    case 'exit': exit;
    case 'exit_text': exit('goodbye');
    case 'exit_code': echo "code 3\n"; exit(3);
    case 'return': echo "returned\n"; return 5;
    case 'undefined_function': no_such_function();
    case 'exception': throw new RuntimeException('thrown by the probe');
    case 'exception_handler': set_exception_handler(function ($e) { echo 'handled ', $e->getMessage(); }); throw new RuntimeException('thrown');
    case 'chained': throw new LogicException('outer', 3, new DomainException('inner'));
    case 'type_error': strlen([]);
    case 'parse': include __DIR__ . '/broken.inc'; break;
    case 'parse_caught': try { include __DIR__ . '/broken.inc'; } catch (ParseError $e) { echo 'caught: ', $e->getMessage(); } break;
    case 'missing_include': include __DIR__ . '/no_such_file.inc'; echo "went on\n"; break;
    case 'missing_require': require __DIR__ . '/no_such_file.inc'; break;
    case 'memory': $s = 'x'; while (true) { $s .= str_repeat($s, 2); } break;
    case 'time': set_time_limit(1); while (true) { md5('busy'); } break;
    case 'warning': echo 1 <=> $undefined, "\n"; trigger_error('a user warning', E_USER_WARNING); echo "went on\n"; break;
    case 'user_error': trigger_error('a user error', E_USER_ERROR); echo "not reached\n"; break;
    case 'deprecated': trigger_error('old ways', E_USER_DEPRECATED); echo "went on\n"; break;
    case 'error_handler': set_error_handler(fn ($n, $text) => print("handled $text\n")); trigger_error('x', E_USER_WARNING); break;
    case 'shutdown_throw': register_shutdown_function(function () { throw new RuntimeException('late'); }); echo "body\n"; break;
    case 'destructor_throw': $o = new class { function __destruct() { throw new RuntimeException('from destructor'); } }; unset($o); break;
    case 'exit_in_shutdown': register_shutdown_function(function () { echo "first\n"; exit; }); register_shutdown_function(function () { echo "second\n"; }); break;
    case 'exit_in_buffer': ob_start(function ($t) { return "[$t]"; }); echo 'inside'; exit;
    case 'redeclare': eval('function fact() {}'); break;
    case 'abstract': eval('class A { abstract function f(); }'); break;
    case 'log_only': error_log('a line for the log'); echo "logged\n"; break;
}
fact('reached_end', true);
