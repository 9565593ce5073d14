<?php
// Laravel's own framework, in the smallest application that has its queue and its scheduler.
require_once '/usr/share/php/Illuminate/autoload.php';

class Letter implements Illuminate\Contracts\Queue\ShouldQueue {
    use Illuminate\Bus\Queueable, Illuminate\Queue\InteractsWithQueue;
    public $to;
    public function __construct($to) { $this->to = $to; }
    public function handle() {
        touch("taken-$this->to");
        while (!file_exists("do-$this->to")) { usleep(2000); clearstatcache(); }
        file_put_contents('done', "$this->to\n", FILE_APPEND);
    }
}

class Kernel extends Illuminate\Foundation\Console\Kernel {
    protected function schedule(Illuminate\Console\Scheduling\Schedule $schedule) {
        $schedule->call(fn () => touch('scheduled'))->everyMinute();
    }
}

foreach (['bootstrap/cache', 'config', 'vendor', 'storage/cache', 'storage/framework'] as $directory) {
    is_dir($directory) || mkdir($directory, 0777, true);
}
$config = [
    'app' => ['key' => str_repeat('k', 32), 'cipher' => 'AES-256-CBC', 'timezone' => 'UTC', 'locale' => 'en', 'aliases' => [],
        'providers' => [
            Illuminate\Bus\BusServiceProvider::class, Illuminate\Cache\CacheServiceProvider::class,
            Illuminate\Database\DatabaseServiceProvider::class, Illuminate\Encryption\EncryptionServiceProvider::class,
            Illuminate\Filesystem\FilesystemServiceProvider::class, Illuminate\Queue\QueueServiceProvider::class,
            Illuminate\Foundation\Providers\ConsoleSupportServiceProvider::class, Illuminate\View\ViewServiceProvider::class,
            Illuminate\Foundation\Providers\FoundationServiceProvider::class,
        ]],
    'cache' => ['default' => 'file', 'stores' => ['file' => ['driver' => 'file', 'path' => getcwd() . '/storage/cache']]],
    'database' => ['default' => 'sqlite',
        'connections' => ['sqlite' => ['driver' => 'sqlite', 'database' => getcwd() . '/queue.sqlite', 'prefix' => '']]],
    'queue' => ['default' => 'database', 'failed' => ['driver' => 'null'],
        'connections' => ['database' => ['driver' => 'database', 'table' => 'jobs', 'queue' => 'default', 'retry_after' => 90]]],
];
foreach ($config as $name => $values) {
    $text = '<?php return ' . var_export($values, true) . ';';
    is_file("config/$name.php") || file_put_contents("config/$name.php", $text);
}
if (!is_file('queue.sqlite')) {
    (new PDO('sqlite:queue.sqlite'))->exec('CREATE TABLE jobs (id INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT,
        payload TEXT, attempts INTEGER, reserved_at INTEGER, available_at INTEGER, created_at INTEGER)');
}

$app = new Illuminate\Foundation\Application(getcwd());
$app->singleton(Illuminate\Contracts\Debug\ExceptionHandler::class, Illuminate\Foundation\Exceptions\Handler::class);
$app->singleton(Illuminate\Contracts\Console\Kernel::class, Kernel::class);
$kernel = $app->make(Illuminate\Contracts\Console\Kernel::class);
if (isset($argv[2]) && $argv[1] === 'push') {
    $kernel->bootstrap();
    $app->make('queue')->push(new Letter($argv[2]));
    exit;
}
$input = new Symfony\Component\Console\Input\ArgvInput();
$status = $kernel->handle($input, new Symfony\Component\Console\Output\ConsoleOutput());
$kernel->terminate($input, $status);
exit($status);
