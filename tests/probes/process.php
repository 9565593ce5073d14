<?php
// What programs started by a script inherit.
require_once __DIR__ . '/facts.php';
header('Content-Type: text/plain');
fact('shell', trim((string) shell_exec('echo works')));
exec('exit 3', $lines, $code);
fact('exit_code', $code);
$status = (string) shell_exec('cat /proc/self/status');
fact('blocked_signals', preg_match('/SigBlk:\s*(\w+)/', $status, $m) ? ltrim($m[1], '0') : null);
fact('ignored_signals', preg_match('/SigIgn:\s*(\w+)/', $status, $m) ? ltrim($m[1], '0') : null);
$open = array_filter(explode("\n", (string) shell_exec('for f in /proc/self/fd/*; do echo ${f##*/}; done')), fn ($n) => $n !== '' && (int) $n > 2 && (int) $n !== 10);
fact('open_descriptors', count($open));
$process = proc_open(['cat'], [['pipe', 'r'], ['pipe', 'w']], $pipes);
fwrite($pipes[0], 'piped');
fclose($pipes[0]);
fact('proc_open', [stream_get_contents($pipes[1]), proc_close($process)]);
fact('stdin', [@file_get_contents('php://stdin')]);
fact('core_limit_is_number', is_numeric(trim((string) shell_exec('ulimit -n'))));
fact('path', shell_exec('command -v ls') !== null);
