<?php
// The same application as a worker, in the shape of Symfony's own runner for FrankenPHP
// (symfony/runtime, Runner/FrankenPhpWorkerRunner): the kernel is made once and boots in
// its first request.
declare(strict_types=1);

use Notes\Kernel;
use Symfony\Component\HttpFoundation\Request;

if (!($_SERVER['FRANKENPHP_WORKER'] ?? false)) {
    exit('not in worker mode');
}
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

ignore_user_abort(true);
$kernel = new Kernel('prod', false);
$boot = array_filter($_SERVER, static fn (string $key): bool => !str_starts_with($key, 'HTTP_'), ARRAY_FILTER_USE_KEY);
$request = $response = null;
$handler = static function () use ($kernel, $boot, &$request, &$response): void {
    $_SERVER += $boot;
    $request = Request::createFromGlobals();
    $response = $kernel->handle($request);
    $response->send();
};
do {
    $more = frankenphp_handle_request($handler);
    if ($request && $response) {
        $kernel->terminate($request, $response);
    }
    gc_collect_cycles();
} while ($more);
