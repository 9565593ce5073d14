<?php
// Coroutines for clients: fibers that give way while they wait for a stream, a time or each other.
// Code that is in no fiber waits where it stands.

namespace Suite;

final class Loop
{
    /** @var array<int, \Fiber> by number, all that have not ended */
    private static array $fibers = [];
    /** @var array<int, array{mixed, bool, float}> number: stream or null, writes, until when */
    private static array $waiting = [];
    /** @var array<int, list<callable>> */
    private static array $deferred = [];
    private static int $last = 0;

    public static function go(callable $code, mixed ...$arguments): int
    {
        Side::client('a coroutine');
        $id = ++self::$last;
        self::$fibers[$id] = new \Fiber(static function () use ($id, $code, $arguments): void {
            try {
                $code(...$arguments);
            } finally {
                foreach (array_reverse(self::$deferred[$id] ?? []) as $last) {
                    $last();
                }
                unset(self::$fibers[$id], self::$waiting[$id], self::$deferred[$id]);
            }
        });
        self::$fibers[$id]->start();
        return $id;
    }

    public static function exists(int $id): bool
    {
        return isset(self::$fibers[$id]);
    }

    /** The number of the coroutine that runs, or -1. */
    public static function current(): int
    {
        $fiber = \Fiber::getCurrent();
        return $fiber ? (array_search($fiber, self::$fibers, true) ?: -1) : -1;
    }

    public static function defer(callable $code): void
    {
        self::$deferred[self::current()][] = $code;
    }

    /** Waits until the stream can be read or written: false after `$seconds`, negative ones being for ever. */
    public static function wait(mixed $stream, bool $writes, float $seconds): bool
    {
        $until = $seconds < 0 ? INF : microtime(true) + $seconds;
        $id = self::current();
        if ($id > 0) {
            self::$waiting[$id] = [$stream, $writes, $until];
            return \Fiber::suspend();
        }
        if ($stream === null) {
            usleep((int) ($seconds * 1e6));
            return false;
        }
        return self::select([[$stream, $writes, $until]]) !== [];
    }

    /** Until somebody resumes this coroutine. */
    public static function park(float $seconds = -1): bool
    {
        return self::wait(null, false, $seconds);
    }

    public static function resume(int $id): bool
    {
        if (!isset(self::$waiting[$id])) {
            return false;
        }
        unset(self::$waiting[$id]);
        self::$fibers[$id]->resume(true);
        return true;
    }

    /** Until no coroutine is left that anything could wake. */
    public static function run(): void
    {
        while (self::$waiting) {
            $possible = array_filter(self::$waiting, static fn ($wait) => $wait[0] !== null || $wait[2] !== INF);
            if (!$possible) {
                return;
            }
            $ready = self::select($possible);
            $now = microtime(true);
            foreach ($possible as $id => $wait) {
                $is_ready = in_array($id, $ready, true);
                // Not where another coroutine has woken or ended it meanwhile.
                if (($is_ready || $wait[2] <= $now) && (self::$waiting[$id] ?? null) === $wait) {
                    unset(self::$waiting[$id]);
                    self::$fibers[$id]->resume($is_ready);
                }
            }
        }
    }

    /** Keys of what is ready, none at the first of their times. */
    private static function select(array $waits): array
    {
        $streams = [[], []];
        foreach ($waits as $key => [$stream, $writes]) {
            if ($stream !== null) {
                $streams[(int) $writes][$key] = $stream;
            }
        }
        $first = min(array_column($waits, 2));
        do {
            $left = $first === INF ? 1.0 : max(0.0, $first - microtime(true));
            [$read, $write, $none] = [$streams[0] ?: null, $streams[1] ?: null, null];
            if (!$read && !$write) {
                usleep((int) ($left * 1e6));
                return [];
            }
            $count = @stream_select($read, $write, $none, (int) $left, (int) (fmod($left, 1) * 1e6));
        } while (!$count && microtime(true) < $first);
        return $count ? array_keys(($read ?? []) + ($write ?? [])) : [];
    }
}

final class Channel
{
    public int $errCode = 0;
    private array $held = [];
    private array $readers = [];
    private array $writers = [];

    public function __construct(public int $capacity = 1)
    {
    }

    public function push(mixed $value, float $timeout = -1): bool
    {
        while (count($this->held) >= $this->capacity) {
            if (!self::queue($this->writers, $timeout)) {
                return false;
            }
        }
        $this->held[] = $value;
        self::wake($this->readers);
        return true;
    }

    public function pop(float $timeout = -1): mixed
    {
        while (!$this->held) {
            if (!self::queue($this->readers, $timeout)) {
                return false;
            }
        }
        $value = array_shift($this->held);
        self::wake($this->writers);
        return $value;
    }

    public function length(): int
    {
        return count($this->held);
    }

    private static function queue(array &$waiting, float $timeout): bool
    {
        $waiting[] = $id = Loop::current();
        $woken = Loop::park($timeout > 0 ? $timeout : -1);
        $waiting = array_values(array_diff($waiting, [$id]));
        return $woken;
    }

    private static function wake(array &$waiting): void
    {
        $waiting && Loop::resume(array_shift($waiting));
    }
}

final class WaitGroup
{
    private array $waiting = [];

    public function __construct(private int $count = 0)
    {
    }

    public function add(int $delta = 1): void
    {
        $this->count += $delta;
    }

    public function done(): void
    {
        if (--$this->count === 0) {
            array_map(Loop::resume(...), $this->waiting);
        }
    }

    public function wait(float $timeout = -1): bool
    {
        $this->waiting[] = Loop::current();
        return $this->count === 0 || Loop::park($timeout);
    }
}
