<?php
// Asks the driver of a suite, at the unix socket ORIGIN, which response to send.
$request = ['method' => $_SERVER['REQUEST_METHOD'], 'url' => $_SERVER['REQUEST_URI'], 'headers' => [],
    'body' => base64_encode(file_get_contents('php://input'))];
foreach ($_SERVER as $name => $value) {
    if (str_starts_with($name, 'HTTP_') || $name === 'CONTENT_LENGTH') {
        $request['headers'][strtolower(strtr(preg_replace('/^HTTP_/', '', $name), '_', '-'))] = $value;
    }
}
$driver = stream_socket_client('unix://' . getenv('ORIGIN'));
fwrite($driver, json_encode($request, JSON_INVALID_UTF8_SUBSTITUTE) . "\n");
$response = json_decode(stream_get_contents($driver), true, flags: JSON_THROW_ON_ERROR);
foreach ($response['headers'] as [$name, $value]) {
    header("$name: $value", false);
}
http_response_code($response['status']);
echo base64_decode($response['body']);
