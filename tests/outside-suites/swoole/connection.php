<?php
// Swoole's three client sockets for TCP and Unix streams: Client, Coroutine\Client, Coroutine\Socket.

namespace Suite;

/** What the three have in common: bytes, packets by their end or their length, and Swoole's error codes. */
class Connection
{
    public int $errCode = 0;
    public string $errMsg = '';
    public bool $connected = false;
    protected array $options = [];
    protected mixed $stream = null;
    protected string $held = '';

    public function set(array $options): bool
    {
        $this->options = $options + $this->options;
        return true;
    }

    protected function open(string $host, int $port, float $timeout): bool
    {
        $this->close();
        $address = str_starts_with($host, '/') ? "unix://$host" : (str_contains($host, ':') ? "tcp://[$host]:$port" : "tcp://$host:$port");
        $stream = @stream_socket_client($address, $code, $text, $timeout > 0 ? $timeout : 5);
        if (!$stream) {
            return $this->fails($code ?: SOCKET_ETIMEDOUT);
        }
        stream_set_blocking($stream, false);
        stream_set_read_buffer($stream, 0);
        $this->stream = $stream;
        $this->held = '';
        return $this->connected = true;
    }

    public function close(): bool
    {
        if (!$this->stream) {
            return false;
        }
        fclose($this->stream);
        $this->stream = null;
        $this->connected = false;
        return true;
    }

    /** All of it: how much was sent, or false. */
    protected function write(string $data, float $timeout): int|false
    {
        $sent = 0;
        while ($sent < strlen($data)) {
            if (!$this->stream) {
                return $this->fails(SOCKET_EPIPE);
            }
            $now = @fwrite($this->stream, substr($data, $sent, 1 << 20));
            if ($now === false) {
                return $this->fails(SOCKET_EPIPE);
            }
            $sent += $now;
            if ($sent < strlen($data) && !Loop::wait($this->stream, true, $timeout)) {
                return $this->fails(SOCKET_ETIMEDOUT);
            }
        }
        return $sent;
    }

    /** What comes next: "" at the end, false after the time. */
    protected function read(int $length, float $timeout): string|false
    {
        if ($this->held !== '') {
            $data = substr($this->held, 0, $length);
            $this->held = substr($this->held, strlen($data));
            return $data;
        }
        while ($this->stream) {
            if (!Loop::wait($this->stream, false, $timeout)) {
                return $this->fails(SOCKET_ETIMEDOUT);
            }
            $data = @fread($this->stream, $length);
            if ($data === false || $data === '' && feof($this->stream)) {
                return '';
            }
            if ($data !== '') {
                return $data;
            }
        }
        return $this->fails(SOCKET_EBADF);
    }

    /** As `read`, until the condition, which says how many bytes belong together, holds. */
    protected function read_until(callable $length, float $timeout): string|false
    {
        $data = '';
        while (($whole = $length($data)) === null || strlen($data) < $whole) {
            $more = $this->read(65536, $timeout);
            if ($more === false || $more === '') {
                return $more;
            }
            $data .= $more;
        }
        $this->held = substr($data, $whole) . $this->held;
        return substr($data, 0, $whole);
    }

    /** One packet, by the options that say what is one. */
    protected function packet(float $timeout): string|false
    {
        if ($this->options['open_eof_check'] ?? $this->options['open_eof_split'] ?? false) {
            $end = $this->options['package_eof'];
            return $this->read_until(static fn ($data) => ($at = strpos($data, $end)) === false ? null : $at + strlen($end), $timeout);
        }
        if ($this->options['open_length_check'] ?? false) {
            [$type, $offset] = [$this->options['package_length_type'], $this->options['package_length_offset'] ?? 0];
            $head = $this->options['package_body_offset'] ?? 0;
            $size = strlen(pack($type, 0));
            return $this->read_until(static fn ($data) => strlen($data) < $offset + $size ? null
                : $head + unpack($type, $data, $offset)[1], $timeout);
        }
        return $this->read(65536, $timeout);
    }

    protected function fails(int $code): false
    {
        $this->errCode = $code;
        $this->errMsg = socket_strerror($code);
        return false;
    }

    public function __serialize(): array
    {
        throw new \Exception('Serialization of ' . static::class . ' is not allowed');
    }

    public function __call(string $name, array $arguments): never
    {
        Side::missing(static::class . "::$name()");
    }
}

class Client extends Connection
{
    public mixed $sock = null;
    private float $timeout = 5;

    public function __construct(public int $type = SWOOLE_SOCK_TCP, mixed ...$ignored)
    {
        Side::client('a client');
        if (!in_array($type & 15, [SWOOLE_SOCK_TCP, SWOOLE_SOCK_TCP6, SWOOLE_SOCK_UNIX_STREAM], true) || $type & SWOOLE_SSL) {
            Side::missing('a client of another kind than TCP');
        }
    }

    public function connect(string $host, int $port = 0, float $timeout = 0, mixed ...$ignored): bool
    {
        $this->timeout = $timeout > 0 ? $timeout : ($this->options['timeout'] ?? 5);
        return $this->open($host, $port, $this->timeout);
    }

    public function isConnected(): bool
    {
        return $this->connected;
    }

    public function send(string $data, mixed ...$ignored): int|false
    {
        return $this->write($data, $this->timeout);
    }
}

/** Swoole\Client. */
final class BlockingClient extends Client
{
    public function recv(int $size = 65536, int $flags = 0): string|false
    {
        return $this->packet(-1);
    }
}

/** Swoole\Coroutine\Client. */
final class CoroutineClient extends Client
{
    public function recv(float $timeout = 0): string|false
    {
        return $this->packet($timeout ?: ($this->options['timeout'] ?? 5));
    }
}

/** Swoole\Coroutine\Socket. */
class Socket extends Connection
{
    public function __construct(public int $domain = AF_INET, public int $type = SOCK_STREAM, public int $protocol = 0)
    {
        Side::client('a client');
        $type === SOCK_STREAM || Side::missing('a socket of another kind than TCP');
    }

    public function connect(string $host, int $port = 0, float $timeout = 0): bool
    {
        return $this->open($host, $port, $timeout);
    }

    public function setProtocol(array $options): bool
    {
        return $this->set($options);
    }

    public function setOption(int $level, int $option, mixed $value): bool
    {
        return socket_set_option(socket_import_stream($this->stream), $level, $option, $value);
    }

    public function send(string $data, float $timeout = 5): int|false
    {
        return $this->write($data, $timeout ?: 5);
    }

    public function sendAll(string $data, float $timeout = 5): int|false
    {
        return $this->write($data, $timeout ?: 5);
    }

    public function recv(int $length = 65536, float $timeout = 5): string|false
    {
        return $this->read($length, $timeout ?: 5);
    }

    public function recvAll(int $length = 65536, float $timeout = 5): string|false
    {
        return $this->read_until(static fn () => $length, $timeout ?: 5);
    }

    public function recvPacket(float $timeout = 5): string|false
    {
        return $this->packet($timeout ?: 5);
    }
}
