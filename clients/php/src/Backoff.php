<?php

declare(strict_types=1);

namespace Gloom;

/**
 * Computes the waits before attempts to connect: random, below a limit that doubles each
 * time, so that the clients of a broker that restarts do not all reconnect at once.
 *
 * @internal
 */
final class Backoff
{
    private float $limit;

    /** @param array{float, float} $limits the first and the largest, in seconds */
    public function __construct(private readonly array $limits)
    {
        $this->limit = $limits[0];
    }

    /** Seconds to wait now. */
    public function wait(): float
    {
        $wait = mt_rand() / mt_getrandmax() * $this->limit;
        $this->limit = min(2 * $this->limit, $this->limits[1]);

        return $wait;
    }

    /** Records how many seconds a connection lasted: after a long one the waits start small again. */
    public function lasted(float $seconds): void
    {
        if ($seconds >= $this->limits[1]) {
            $this->limit = $this->limits[0];
        }
    }
}
