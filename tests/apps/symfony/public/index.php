<?php
// A Symfony application on Debian's packages: notes with pictures. The test suite
// uses it as its authors and its readers would (crates/howdah-tests/tests/apps/symfony.rs).
declare(strict_types=1);

foreach (['Bundle/FrameworkBundle', 'Bundle/TwigBundle', 'Bundle/SecurityBundle', 'Component/Form', 'Component/Validator', 'Component/Mime', 'Bridge/Twig', 'Component/Security/Csrf'] as $part) {
    require_once "/usr/share/php/Symfony/$part/autoload.php";
}
spl_autoload_register(static function (string $class): void {
    // Symfony 6 asks Composer which packages are installed.
    if ($class === 'Composer\InstalledVersions' && is_file('/usr/share/php/Composer/InstalledVersions.php')) {
        require '/usr/share/php/Composer/InstalledVersions.php';
    }
    if (str_starts_with($class, 'Notes\\')) {
        require dirname(__DIR__) . '/src/' . substr($class, 6) . '.php';
    }
});

use Notes\Kernel;
use Symfony\Component\HttpFoundation\Request;

$kernel = new Kernel('prod', false);
$request = Request::createFromGlobals();
$response = $kernel->handle($request);
$response->send();
$kernel->terminate($request, $response);
