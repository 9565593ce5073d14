<?php
// The same application as a worker, as Octane does it: booted once, a copy of the container for each request.
declare(strict_types=1);

if (!($_SERVER['FRANKENPHP_WORKER'] ?? false)) {
    exit('not in worker mode');
}
$app = require dirname(__DIR__) . '/application.php';
$app->instance('request', Illuminate\Http\Request::create('/'));
$app->make(Illuminate\Contracts\Http\Kernel::class)->bootstrap();
foreach (['view', 'router', 'session', 'encrypter', 'cookie', 'translator', 'url'] as $service) {
    $app->make($service);
}
ignore_user_abort(true);
$handler = static function () use ($app): void {
    $copy = clone $app;
    $copy->instance('app', $copy);
    $copy->instance(Illuminate\Container\Container::class, $copy);
    Illuminate\Container\Container::setInstance($copy);
    Illuminate\Support\Facades\Facade::clearResolvedInstances();
    Illuminate\Support\Facades\Facade::setFacadeApplication($copy);
    $kernel = $copy->make(Illuminate\Contracts\Http\Kernel::class);
    $request = Illuminate\Http\Request::capture();
    $response = $kernel->handle($request);
    $response->send();
    $kernel->terminate($request, $response);
};
while (frankenphp_handle_request($handler)) {
    gc_collect_cycles();
}
