<?php

declare(strict_types=1);

namespace Gloom;

/**
 * Thrown by a handler: the job goes back to its place as if it had never been handed out,
 * and first waits for this many seconds. Without a wait, the same worker may get it at
 * once.
 */
class Release extends \RuntimeException
{
    public function __construct(public readonly float $delay = 0.0)
    {
        parent::__construct('released');
    }
}
