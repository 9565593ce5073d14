<?php
// A Laravel application on Debian's package of the framework: one page of a list, behind the middleware that
// every new application has (cookies, session, CSRF). Shared by the front controller and the worker.
declare(strict_types=1);

require_once '/usr/share/php/Illuminate/autoload.php';

use Illuminate\Cookie\Middleware\AddQueuedCookiesToResponse;
use Illuminate\Cookie\Middleware\EncryptCookies;
use Illuminate\Foundation\Http\Middleware\VerifyCsrfToken;
use Illuminate\Routing\Middleware\SubstituteBindings;
use Illuminate\Session\Middleware\StartSession;
use Illuminate\View\Middleware\ShareErrorsFromSession;

if (!class_exists('HttpKernel', false)) {
    class HttpKernel extends Illuminate\Foundation\Http\Kernel
    {
        protected $middlewareGroups = ['web' => [
            EncryptCookies::class, AddQueuedCookiesToResponse::class, StartSession::class,
            ShareErrorsFromSession::class, VerifyCsrfToken::class, SubstituteBindings::class,
        ]];
    }

    class Routes extends Illuminate\Foundation\Support\Providers\RouteServiceProvider
    {
        public function boot()
        {
            $this->routes(function () {
                Illuminate\Support\Facades\Route::middleware('web')->get('/', [Stages::class, 'list']);
            });
        }
    }

    class Stages extends Illuminate\Routing\Controller
    {
        public function list(Illuminate\Http\Request $request)
        {
            $visits = 1 + $request->session()->get('visits', 0);
            $request->session()->put('visits', $visits);
            return view('stages', ['stages' => range(1, 50), 'visits' => $visits]);
        }
    }
}

$app = new Illuminate\Foundation\Application(__DIR__);
$app->singleton(Illuminate\Contracts\Http\Kernel::class, HttpKernel::class);
$app->singleton(Illuminate\Contracts\Debug\ExceptionHandler::class, Illuminate\Foundation\Exceptions\Handler::class);

return $app;
