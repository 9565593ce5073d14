<?php
// The state of the connection as a script sees it.
require_once __DIR__ . '/facts.php';
header('Content-Type: text/plain');
fact('status', connection_status());
fact('aborted', connection_aborted());
fact('ignore', ignore_user_abort());
fact('ignore_set', [ignore_user_abort(true), ignore_user_abort()]);
fact('limit', ini_get('max_execution_time'));
fact('sleep', [sleep(0), usleep(1)]);
