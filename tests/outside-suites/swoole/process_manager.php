<?php
// The tests' own class of this name, again: forks a test into its server, the child, and its clients, the
// parent, which wait until the server says that it is ready, or listens.

namespace SwooleTest;

use Suite\Loop;
use Suite\Side;
use Swoole\Atomic;

class ProcessManager
{
    public mixed $parentFunc = null;
    public mixed $childFunc = null;
    public bool $async = false;
    public bool $useConstantPorts = false;
    protected array $freePorts = [];
    protected mixed $randomFunc = 'get_safe_random';
    /** @var array<int, list<mixed>> */
    protected array $randomData = [[]];
    protected array $randomDataArray = [];
    protected int $childExitStatus = 255;
    protected array $expectExitSignal = [0, SIGTERM];
    private Atomic $ready;
    private ?float $patience = null;
    private bool $waits_for_parent = false;
    private int $child = 0;
    private ?int $status = null;
    private ?string $child_output = null;

    public function __construct()
    {
        $this->ready = new Atomic(0);
        Side::$client = true;
    }

    public function setParent(callable $code): void
    {
        $this->parentFunc = $code;
    }

    public function setChild(callable $code): void
    {
        $this->childFunc = $code;
    }

    public function parentFirst(): void
    {
        $this->waits_for_parent = true;
    }

    public function childFirst(): void
    {
        $this->waits_for_parent = false;
    }

    public function setWaitTimeout(float $seconds): void
    {
        $this->patience = $seconds;
    }

    public function setExpectExitSignal(int|array $signals = 0): void
    {
        $this->expectExitSignal = (array) $signals;
    }

    public function setRandomFunc(callable $code): void
    {
        $this->randomFunc = $code;
    }

    public function wakeup(): bool
    {
        return $this->ready->wakeup();
    }

    /** For wakeup(). A test that never calls it means: until the server listens. */
    public function wait(): bool
    {
        $end = match (true) {
            $this->patience === null => microtime(true) + 20,
            $this->patience < 0 => INF,
            default => microtime(true) + $this->patience,
        };
        for ($round = 0; microtime(true) < $end; $round++) {
            if ($this->ready->wait(0.1)) {
                return true;
            }
            if (($this->patience ?? -1) < 0 && $this->has_ended(WNOHANG)) {
                // Its message is all there is to judge, unless it has done what it had to do.
                pcntl_wexitstatus($this->status) ? exit(1) : null;
                return false;
            }
            if ($this->patience === null && $round > 9 && self::listens($this->freePorts[0])) {
                return true;
            }
        }
        return false;
    }

    /** Without a connection, which the server would count. */
    private static function listens(int $port): bool
    {
        return (bool) preg_match(sprintf('/:%04X [0-9A-F]+:0000 0A /', $port), file_get_contents('/proc/net/tcp'));
    }

    public function getFreePort(int $index = 0): int
    {
        return $this->freePorts[$index];
    }

    public function initFreePorts(int $count = 1): void
    {
        while ($count-- > 0) {
            $this->freePorts[] = get_one_free_port();
        }
    }

    public function initFreeIPv6Ports(int $count = 1): void
    {
        while ($count-- > 0) {
            $this->freePorts[] = get_one_free_port_ipv6();
        }
    }

    public function initRandomData(int $size, ?int $length = null): void
    {
        $this->initRandomDataEx(1, $size, ...($length === null ? [] : [$length]));
    }

    public function initRandomDataEx(int $blocks, int $size, mixed ...$arguments): void
    {
        $arguments = array_filter($arguments, static fn ($argument) => $argument !== null);
        for ($block = 0; $block < $blocks; $block++) {
            for ($n = 0; $n < $size; $n++) {
                $this->randomData[$block][] = ($this->randomFunc)(...$arguments);
            }
        }
    }

    public function initRandomDataArray(int $count = 1, int $length = 0, bool $base64 = false): void
    {
        $length = $length ?: random_int(1 << 10, 1 << 20);
        while ($count-- > 0) {
            $bytes = random_bytes($length);
            $this->randomDataArray[] = $base64 ? base64_encode($bytes) : $bytes;
        }
    }

    public function getRandomData(): mixed
    {
        return $this->getRandomDataEx(0);
    }

    public function getRandomDataEx(int $block): mixed
    {
        if (empty($this->randomData[$block])) {
            throw new \RuntimeException('no random data is left');
        }
        return array_shift($this->randomData[$block]);
    }

    public function getRandomDataSize(): int
    {
        return count($this->randomData[0]);
    }

    public function getRandomDataSizeEx(int $block): int
    {
        return count($this->randomData[$block]);
    }

    public function getRandomDataElement(int $index = 0): mixed
    {
        return $this->randomDataArray[$index];
    }

    public function getChildPid(): int
    {
        return $this->child;
    }

    public function kill(bool $force = false): void
    {
        if ($this->child && $this->status === null) {
            posix_kill($this->child, $force ? SIGKILL : SIGTERM);
        }
    }

    private function has_ended(int $flags): bool
    {
        if ($this->child && $this->status === null && pcntl_waitpid($this->child, $status, $flags) > 0) {
            $this->status = $status;
        }
        return $this->status !== null;
    }

    public function run(bool $redirects = false): bool
    {
        $this->freePorts || $this->initFreePorts();
        $output = $redirects ? tempnam(sys_get_temp_dir(), 'child') : null;
        $child = pcntl_fork();
        if ($child === 0) {
            $this->be_child($output);
        }
        $this->child = $child;
        register_shutdown_function($this->kill(...));
        $this->waits_for_parent || $this->wait();
        $this->parentFunc ? ($this->parentFunc)($child) : $this->kill();
        Loop::run();
        $this->has_ended(0);
        $status = $this->status;
        $this->child_output = $output ? file_get_contents($output) : null;
        $this->childExitStatus = pcntl_wifexited($status) ? pcntl_wexitstatus($status) : 0;
        $signal = pcntl_wifsignaled($status) ? pcntl_wtermsig($status) : 0;
        if (!in_array($signal, $this->expectExitSignal, true)) {
            throw new \RuntimeException("the server ended by signal $signal");
        }
        return true;
    }

    private function be_child(?string $output): never
    {
        Side::$client = false;
        if ($output) {
            ob_start(static function (string $text) use ($output): string {
                file_put_contents($output, $text, FILE_APPEND);
                return '';
            }, 1);
        }
        $this->waits_for_parent && $this->wait();
        ($this->childFunc)();
        exit;
    }

    public function getChildOutput(): string
    {
        return $this->child_output ?? '';
    }

    public function getChildExitStatus(): int
    {
        return $this->childExitStatus;
    }

    public function expectExitCode(int|array $codes = 0): void
    {
        if (!in_array($this->childExitStatus, (array) $codes, true)) {
            throw new \RuntimeException("the server ended with $this->childExitStatus");
        }
    }

    /** In a process of its own, with its output. */
    public static function exec(callable $code): static
    {
        $manager = new static();
        $manager->setWaitTimeout(0);
        $manager->parentFunc = static fn () => null;
        $manager->childFunc = static fn () => $code($manager);
        $manager->run(true);
        return $manager;
    }
}
