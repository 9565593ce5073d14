<?php
// Swoole\Coroutine\Http\Client: HTTP/1.1, one request at a time, the connection kept.

namespace Suite;

class HttpClient extends Connection
{
    public int $statusCode = 0;
    public ?array $headers = null;
    public ?array $set_cookie_headers = null;
    public ?array $cookies = null;
    public string $body = '';
    public string $host;
    public ?string $requestMethod = null;
    public ?array $requestHeaders = null;
    public mixed $requestBody = null;
    private array $files = [];
    private string $sent_head = '';

    public function __construct(string $host, public int $port = 0, public bool $ssl = false)
    {
        Side::client('an HTTP client');
        $ssl && Side::missing('HTTPS');
        $this->host = preg_replace('#^unix:/*#', '/', $host);
        $this->port = $port ?: 80;
    }

    public function setMethod(string $method): void
    {
        $this->requestMethod = $method;
    }

    public function setHeaders(array $headers): void
    {
        $this->requestHeaders = $headers;
    }

    public function setCookies(array $cookies): void
    {
        $this->cookies = $cookies;
    }

    public function setData(mixed $data): void
    {
        $this->requestBody = $data;
    }

    public function addFile(string $path, string $name, ?string $type = null, ?string $filename = null, int $offset = 0, int $length = 0): bool
    {
        $this->files[] = [$name, $filename ?: basename($path), $type ?: mime_content_type($path),
                          file_get_contents($path, false, null, $offset, $length ?: null)];
        return true;
    }

    public function addData(string $data, string $name, ?string $type = null, ?string $filename = null): bool
    {
        $this->files[] = [$name, $filename ?: $name, $type ?: 'application/octet-stream', $data];
        return true;
    }

    public function get(string $path): bool
    {
        $this->requestMethod = 'GET';
        $this->requestBody = null;
        return $this->execute($path);
    }

    public function post(string $path, mixed $data): bool
    {
        $this->requestMethod = 'POST';
        $this->requestBody = $data;
        return $this->execute($path);
    }

    public function download(string $path, string $file, int $offset = 0): bool
    {
        $done = $this->get($path);
        return $done && file_put_contents($file, $this->body, $offset ? FILE_APPEND : 0) !== false;
    }

    public function execute(string $path): bool
    {
        [$type, $body] = $this->encode();
        $method = $this->requestMethod ?: ($body === null ? 'GET' : 'POST');
        $own = ['Host' => $this->host . ($this->port === 80 ? '' : ":$this->port"),
                'Connection' => $this->options['keep_alive'] ?? true ? 'keep-alive' : 'close'];
        $own += ['Accept-Encoding' => 'gzip'];
        if ($type) {
            $own['Content-Type'] = $type;
        }
        if ($this->cookies) {
            $own['Cookie'] = implode('; ', array_map(static fn ($n, $v) => "$n=" . urlencode($v), array_keys($this->cookies), $this->cookies));
        }
        $head = "$method $path HTTP/1.1\r\n";
        $theirs = $this->requestHeaders ?? [];
        foreach ($theirs + array_diff_ukey($own, $theirs, strcasecmp(...)) as $name => $value) {
            $head .= "$name: $value\r\n";
        }
        if ($body !== null) {
            $head .= 'Content-Length: ' . strlen($body) . "\r\n";
        }
        $this->sent_head = "$head\r\n";
        $this->files = [];
        [$this->headers, $this->set_cookie_headers, $this->body] = [[], null, ''];
        // A kept connection may have been closed meanwhile.
        foreach ($this->stream ? [0, 1] : [1] as $last) {
            $timeout = (float) ($this->options['timeout'] ?? 5);
            if (!$this->stream && !$this->open($this->host, $this->port, $this->options['connect_timeout'] ?? $timeout)) {
                return $this->ends(-1);
            }
            $sent = $this->write($this->sent_head . $body, $timeout);
            $end = $this->answer($method, microtime(true) + ($timeout > 0 ? $timeout : 3600));
            if ($end === 0) {
                return true;
            }
            $this->close();
            if ($end !== -3 || $last) {
                return $this->ends($end);
            }
        }
    }

    /** Content type and body of what is to be sent. */
    private function encode(): array
    {
        $data = $this->requestBody;
        if (!$this->files) {
            return is_array($data) ? ['application/x-www-form-urlencoded', http_build_query($data)] : [null, $data === null ? null : (string) $data];
        }
        $mark = '----suite' . bin2hex(random_bytes(8));
        $body = '';
        foreach (is_array($data) ? $data : [] as $name => $value) {
            $body .= "--$mark\r\nContent-Disposition: form-data; name=\"$name\"\r\n\r\n$value\r\n";
        }
        foreach ($this->files as [$name, $file, $type, $content]) {
            $body .= "--$mark\r\nContent-Disposition: form-data; name=\"$name\"; filename=\"$file\"\r\nContent-Type: $type\r\n\r\n$content\r\n";
        }
        return ["multipart/form-data; boundary=$mark", "$body--$mark--\r\n"];
    }

    /** 0, or Swoole's status for what went wrong: -2 too late, -3 closed. */
    private function answer(string $method, float $end): int
    {
        $left = static fn () => max(0.0, $end - microtime(true));
        $wrong = static fn ($got) => $got === false ? -2 : -3;
        do {
            $head = $this->read_until(static fn ($data) => ($at = strpos($data, "\r\n\r\n")) === false ? null : $at + 4, $left());
            if (!$head) {
                return $wrong($head);
            }
            $lines = explode("\r\n", rtrim($head));
            $this->statusCode = (int) substr($lines[0], 9, 3);
        } while ($this->statusCode < 200 && $this->statusCode !== 101);
        $this->take_fields(array_slice($lines, 1));
        if ($method === 'HEAD' || in_array($this->statusCode, [101, 204, 304], true)) {
            return 0;
        }
        if (stripos($this->headers['transfer-encoding'] ?? '', 'chunked') !== false) {
            $body = '';
            do {
                $line = $this->read_until(static fn ($data) => ($at = strpos($data, "\r\n")) === false ? null : $at + 2, $left());
                $size = $line ? hexdec(trim($line)) : 0;
                $chunk = $line && $size ? $this->read_until(static fn () => $size + 2, $left()) : $line;
                if (!$chunk) {
                    return $wrong($chunk);
                }
                $body .= $size ? substr($chunk, 0, $size) : '';
            } while ($size);
            $trailer = $this->read_until(static fn ($data) => str_starts_with($data, "\r\n") ? 2
                : (($at = strpos($data, "\r\n\r\n")) === false ? null : $at + 4), $left());
            if (!$trailer) {
                return $wrong($trailer);
            }
            $this->take_fields(array_filter(explode("\r\n", trim($trailer))));
        } elseif (isset($this->headers['content-length'])) {
            $length = (int) $this->headers['content-length'];
            $body = $length ? $this->read_until(static fn () => $length, $left()) : '';
            if ($length && !$body) {
                return $wrong($body);
            }
        } else {
            for ($body = ''; ($more = $this->read(65536, $left())) !== ''; $body .= $more) {
                if ($more === false) {
                    return -2;
                }
            }
        }
        $this->body = match ($this->headers['content-encoding'] ?? '') {
            'gzip' => gzdecode($body),
            'deflate' => @gzuncompress($body) ?: gzinflate($body),
            default => $body,
        };
        if (strcasecmp($this->headers['connection'] ?? '', 'close') === 0) {
            $this->close();
        }
        return 0;
    }

    private function take_fields(array $lines): void
    {
        foreach ($lines as $line) {
            [$name, $value] = explode(':', $line, 2) + [1 => ''];
            [$name, $value] = [strtolower($name), trim($value)];
            $this->headers[$name] = $value;
            if ($name === 'set-cookie') {
                $this->set_cookie_headers[] = $value;
                [$cookie] = explode(';', $value);
                [$key, $content] = explode('=', $cookie, 2) + [1 => ''];
                $this->cookies[$key] = urldecode($content);
            }
        }
    }

    private function ends(int $status): false
    {
        $this->statusCode = $status;
        $this->errCode = $this->errCode ?: ($status === -3 ? SOCKET_ECONNRESET : SOCKET_ETIMEDOUT);
        $this->errMsg = socket_strerror($this->errCode);
        return false;
    }

    public function getHeaders(): ?array
    {
        return $this->headers;
    }

    public function getCookies(): ?array
    {
        return $this->cookies;
    }

    public function getStatusCode(): int
    {
        return $this->statusCode;
    }

    public function getBody(): string
    {
        return $this->body;
    }

    public function getHeaderOut(): string
    {
        return $this->sent_head;
    }
}
