<?php

declare(strict_types=1);

namespace Gloom\Exception;

/** An error frame of the broker. */
abstract class BrokerException extends GloomException
{
    /** The error code of the protocol, such as "id_exists". */
    public readonly string $error;
    /** A sentence for people. */
    public readonly string $reason;
    /** The job, null if no job is concerned. */
    public readonly ?string $id;
    /** The worker of the job's last run was lost: that run may have finished. */
    public readonly bool $lost;
    /** The worker wants no further run. */
    public readonly bool $final;

    /** @param array<string, mixed> $frame */
    final public function __construct(array $frame)
    {
        $text = static fn (string $key): string => is_string($frame[$key] ?? null) ? $frame[$key] : '';
        $this->error = $text('error');
        $this->reason = $text('reason');
        $this->id = is_string($frame['id'] ?? null) ? $frame['id'] : null;
        $this->lost = $text('cause') === 'lost';
        $this->final = $text('cause') === 'final';
        $about = $this->id === null ? '' : " (id \"$this->id\")";
        parent::__construct(static::WHAT . ": $this->error: $this->reason$about");
    }

    protected const WHAT = '';
}
