<?php
declare(strict_types=1);

namespace Guestbook;

/** A refusal that is shown to the visitor: an HTTP status and one sentence. */
final class Failure extends \RuntimeException
{
    public function __construct(public readonly int $status, string $message)
    {
        parent::__construct($message);
    }
}
