<?php
/** Finds Guestbook\X in src/X.php. Nothing else is loaded this way. */
declare(strict_types=1);

spl_autoload_register(static function (string $class): void {
    if (str_starts_with($class, 'Guestbook\\')) {
        require __DIR__ . '/' . substr($class, strlen('Guestbook\\')) . '.php';
    }
});
