<?php

declare(strict_types=1);

namespace Gloom;

use Gloom\Exception\NotConnectedException;

/** A submitted job. */
final class Pending
{
    /** @internal */
    public bool $acked = false;
    /** @internal */
    public bool $sent = false;
    /** @internal */
    public ?\Throwable $error = null;
    /** @internal */
    public ?RawJson $answer = null;
    private bool $done = false;

    /**
     * @internal
     * @param ?string $frame the submit or attach, while it may have to be sent
     * @param ?\Closure(mixed): void $onProgress
     */
    public function __construct(
        private readonly Submitter $submitter,
        public readonly string $id,
        public ?string $frame,
        public readonly bool $detached = false,
        public readonly bool $kept = false,
        public bool $again = false,
        public readonly ?\Closure $onProgress = null,
    ) {
    }

    /** Whether the job has ended: result then returns at once. */
    public function done(): bool
    {
        return $this->done;
    }

    /**
     * Waits until the broker has accepted the job.
     *
     * @param ?float $within seconds; after that NotConnectedException is thrown
     */
    public function ack(?float $within = null): void
    {
        $this->submitter->until(fn (): bool => $this->acked || $this->done, $within)
            ?: throw new NotConnectedException("job \"$this->id\" is not acked within $within s");
        if (!$this->acked && $this->error !== null) {
            throw $this->error;
        }
    }

    /**
     * Waits for the answer; null for a detached job.
     *
     * @param ?float $within seconds; after that NotConnectedException is thrown, and the job continues
     * @throws Exception\JobException | Exception\RefusedException | Exception\LostException
     */
    public function result(?float $within = null): mixed
    {
        $this->submitter->until($this->done(...), $within)
            ?: throw new NotConnectedException("job \"$this->id\" has not ended within $within s");
        if ($this->error !== null) {
            throw $this->error;
        }

        return $this->answer === null ? null : $this->submitter->open($this->answer);
    }

    /** @internal */
    public function end(?RawJson $answer, ?\Throwable $error): void
    {
        if (!$this->done) {
            [$this->done, $this->answer, $this->error, $this->frame] = [true, $answer, $error, null];
        }
    }
}
