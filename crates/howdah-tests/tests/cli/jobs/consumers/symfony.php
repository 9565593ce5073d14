<?php
// Symfony's own consumer, as FrameworkBundle puts it together.
foreach (['Console', 'EventDispatcher', 'Messenger', 'Messenger/Bridge/Redis'] as $part) {
    require_once "/usr/share/php/Symfony/Component/$part/autoload.php";
}
use Symfony\Component\Console\Application;
use Symfony\Component\EventDispatcher\EventDispatcher;
use Symfony\Component\Messenger\{Command\ConsumeMessagesCommand, EventListener, MessageBus, RoutableMessageBus};
use Symfony\Component\Messenger\Bridge\Redis\Transport\{Connection, RedisTransport};
use Symfony\Component\Messenger\Handler\HandlersLocator;
use Symfony\Component\Messenger\Middleware\{HandleMessageMiddleware, SendMessageMiddleware};
use Symfony\Component\Messenger\Transport\Sender\SendersLocator;

class Letter { public string $to; public function __construct(string $to) { $this->to = $to; } }

final class Services implements Psr\Container\ContainerInterface {
    private array $all;
    public function __construct(array $all) { $this->all = $all; }
    public function get(string $id) { return $this->all[$id]; }
    public function has(string $id): bool { return isset($this->all[$id]); }
}

$transport = new RedisTransport(Connection::fromDsn(getenv('MESSENGER_TRANSPORT_DSN'), ['delete_after_ack' => true]));
$services = new Services(['async' => $transport]);
$handlers = new HandlersLocator([Letter::class => [fn (Letter $letter) => send($letter->to)]]);
$bus = new MessageBus([
    new SendMessageMiddleware(new SendersLocator([Letter::class => ['async']], $services)),
    new HandleMessageMiddleware($handlers),
]);
$events = new EventDispatcher();
foreach (['StopWorkerOnSigtermSignalListener', 'StopWorkerOnSignalsListener'] as $listener) {
    $class = EventListener::class . '\\' . $listener;
    if (class_exists($class)) { $events->addSubscriber(new $class()); break; }
}
$console = new Application();
$console->add(new ConsumeMessagesCommand(new RoutableMessageBus(new Services([]), $bus), $services, $events, null, ['async']));

if (PHP_SAPI === 'cli' && isset($argv[2]) && $argv[1] === 'push') {
    $bus->dispatch(new Letter($argv[2]));
    exit;
}
$console->run();

function send(string $to): void {
    touch("taken-$to");
    while (!file_exists("do-$to")) { usleep(2000); clearstatcache(); }
    file_put_contents('done', "$to\n", FILE_APPEND);
}
