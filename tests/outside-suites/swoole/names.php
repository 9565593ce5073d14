<?php
// The names under which tests find coroutines and clients, in Swoole's spellings, and Swoole's switches
// that have nothing to switch here.

namespace Suite {
    class Coroutine
    {
        public static function create(callable $code, mixed ...$arguments): int
        {
            return Loop::go($code, ...$arguments);
        }

        public static function set(array $options): void
        {
        }

        public static function getCid(): int
        {
            Side::client('a coroutine');
            return Loop::current();
        }

        public static function getUid(): int
        {
            Side::client('a coroutine');
            return Loop::current();
        }

        public static function exists(int $id): bool
        {
            return Loop::exists($id);
        }

        public static function defer(callable $code): void
        {
            Loop::defer($code);
        }

        public static function yield(): bool
        {
            Side::client('a coroutine');
            return Loop::park();
        }

        public static function resume(int $id): bool
        {
            Side::client('a coroutine');
            return Loop::resume($id);
        }

        public static function sleep(float $seconds): bool
        {
            Side::client('a coroutine');
            Loop::wait(null, false, $seconds);
            return true;
        }

        public static function join(array $ids, float $timeout = -1): bool
        {
            while (array_filter($ids, Loop::exists(...))) {
                self::sleep(0.001);
            }
            return true;
        }

        /** Reads as PHP does, on both sides: tests take it for file_get_contents(). */
        public static function readFile(string $file): string|false
        {
            return file_get_contents($file);
        }

        public static function exec(string $command): array
        {
            Side::client('a coroutine');
            exec($command, $lines, $code);
            return ['code' => $code, 'signal' => 0, 'output' => implode("\n", $lines)];
        }

        public static function __callStatic(string $name, array $arguments): never
        {
            Side::missing("Swoole\\Coroutine::$name()");
        }
    }

    class Event
    {
        public static function wait(): void
        {
            Side::$client && Loop::run();
        }

        public static function __callStatic(string $name, array $arguments): never
        {
            Side::missing("Swoole\\Event::$name()");
        }
    }

    class Runtime
    {
        public static function enableCoroutine(mixed ...$ignored): bool
        {
            return true;
        }

        public static function setHookFlags(int $flags): bool
        {
            return true;
        }

        public static function getHookFlags(): int
        {
            return 0;
        }
    }

    foreach ([
        Coroutine::class => ['Swoole\Coroutine', 'Co', 'Swoole\Coroutine\System', 'Co\System'],
        Event::class => ['Swoole\Event'],
        Runtime::class => ['Swoole\Runtime'],
        Channel::class => ['Swoole\Coroutine\Channel', 'Co\Channel', 'chan'],
        WaitGroup::class => ['Swoole\Coroutine\WaitGroup', 'Co\WaitGroup'],
        BlockingClient::class => ['Swoole\Client'],
        CoroutineClient::class => ['Swoole\Coroutine\Client', 'Co\Client'],
        Socket::class => ['Swoole\Coroutine\Socket', 'Co\Socket'],
        HttpClient::class => ['Swoole\Coroutine\Http\Client', 'Co\Http\Client'],
    ] as $class => $names) {
        foreach ($names as $name) {
            class_alias($class, $name);
        }
    }
}

namespace Swoole\Coroutine {
    function go(callable $code, mixed ...$arguments): int
    {
        return \Suite\Loop::go($code, ...$arguments);
    }

    function defer(callable $code): void
    {
        \Suite\Loop::defer($code);
    }

    function run(callable $code, mixed ...$arguments): bool
    {
        \Suite\Loop::go($code, ...$arguments);
        \Suite\Loop::current() < 0 && \Suite\Loop::run();
        return true;
    }
}

namespace Co {
    function go(callable $code, mixed ...$arguments): int
    {
        return \Suite\Loop::go($code, ...$arguments);
    }

    function run(callable $code, mixed ...$arguments): bool
    {
        return \Swoole\Coroutine\run($code, ...$arguments);
    }
}

namespace Swoole\Coroutine\Http {
    function request(string $url, string $method, mixed $data = null, array $options = [], array $headers = [], array $cookies = []): \Suite\HttpClient
    {
        $parts = parse_url($url);
        $client = new \Suite\HttpClient($parts['host'], $parts['port'] ?? 80);
        $client->set($options);
        $client->setMethod($method);
        $client->setHeaders($headers);
        $client->setCookies($cookies);
        $client->setData($data);
        $client->execute(($parts['path'] ?? '/') . (isset($parts['query']) ? "?$parts[query]" : ''));
        return $client;
    }

    function get(string $url, mixed ...$more): \Suite\HttpClient
    {
        return request($url, 'GET', null, ...$more);
    }

    function post(string $url, mixed $data, mixed ...$more): \Suite\HttpClient
    {
        return request($url, 'POST', $data, ...$more);
    }
}

namespace {
    function go(callable $code, mixed ...$arguments): int
    {
        return \Suite\Loop::go($code, ...$arguments);
    }

    function defer(callable $code): void
    {
        \Suite\Loop::defer($code);
    }

    /** Swoole's library has text as objects, of which tests ask this. */
    function swoole_string(string $text): object
    {
        return new class ($text) {
            public function __construct(private string $text)
            {
            }

            public function contains(string $part): bool
            {
                return str_contains($this->text, $part);
            }
        };
    }

    function swoole_async_set(array $options): void
    {
    }
}
