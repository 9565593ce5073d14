<?php
/** Loads the class Guestbook\X from src/X.php. Classes of other namespaces are not loaded. */
declare(strict_types=1);

spl_autoload_register(static function (string $class): void {
    if (str_starts_with($class, 'Guestbook\\')) {
        require __DIR__ . '/' . substr($class, strlen('Guestbook\\')) . '.php';
    }
});
