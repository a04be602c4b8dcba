<?php

declare(strict_types=1);

namespace Gloom;

/** Thrown by a handler: the run has failed, and the next one waits this many seconds. */
class RetryAfter extends \RuntimeException
{
    public function __construct(public readonly float $delay, string $reason = 'failed, to be retried later')
    {
        parent::__construct($reason);
    }
}
