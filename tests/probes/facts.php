<?php
/**
 * What every probe reports with: one fact per line, `name = JSON`. Arrays become one
 * fact per leaf, so that a difference names exactly what differs. Bytes that are not
 * UTF-8 are told in hexadecimal.
 */

function fact(string $name, mixed $value): void
{
    if (is_array($value)) {
        if ($value === []) {
            echo "$name = []\n";
        }
        foreach ($value as $key => $item) {
            fact($name . '.' . (mb_check_encoding((string) $key, 'UTF-8') ? addcslashes((string) $key, "\0..\37= ") : 'hex:' . bin2hex($key)), $item);
        }
        return;
    }
    if (is_object($value)) {
        $value = 'object ' . $value::class;
    }
    if (is_string($value) && !mb_check_encoding($value, 'UTF-8')) {
        $value = 'hex:' . bin2hex($value);
    }
    if (is_string($value) && strlen($value) > 2000) {
        $value = strlen($value) . ' bytes, md5 ' . md5($value);
    }
    echo $name, ' = ', json_encode($value, JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE | JSON_PRESERVE_ZERO_FRACTION), "\n";
}

function how(): string
{
    return is_string($_GET['how'] ?? null) ? $_GET['how'] : '';
}
