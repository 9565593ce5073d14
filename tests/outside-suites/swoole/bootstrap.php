<?php
// In place of the tests' include/bootstrap.php: the suite's own constants, functions and assertions.

require_once __DIR__ . '/config.php';
error_reporting(E_ALL ^ E_DEPRECATED);
ini_set('memory_limit', '1024M');

class_alias(SwooleTest\ProcessManager::class, 'ProcessManager');
class_alias(SwooleTest\RandStr::class, 'RandStr');

class Assert extends SwooleTest\Assert
{
    protected static $throwException = false;
}

register_shutdown_function(static fn () => Suite\Side::$client && Suite\Loop::run());
