<?php

declare(strict_types=1);

namespace Gloom;

/** A job as its handler sees it. */
final class Job
{
    /**
     * @internal
     * @param array<string, mixed> $headers
     */
    public function __construct(
        private readonly Worker $worker,
        public readonly string $id,
        public readonly string $type,
        public readonly RawJson $raw,
        public readonly mixed $body,
        public readonly array $headers,
    ) {
    }

    /** Sends progress of the run to a submitter that asked for it. */
    public function progress(mixed $body): void
    {
        $this->worker->progress($this, $body);
    }

    /**
     * Whether nobody waits for the run any more: it was cancelled or took too long, or the
     * broker is lost. The result is then discarded. Call this now and then during long work.
     *
     * @param float $within seconds to wait for this to become true
     */
    public function unwanted(float $within = 0.0): bool
    {
        return $this->worker->unwanted($this, $within);
    }
}
