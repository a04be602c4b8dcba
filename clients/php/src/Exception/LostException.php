<?php

declare(strict_types=1);

namespace Gloom\Exception;

/**
 * The connection was lost while a job or a request was pending on it. Unless the job is
 * detached or kept, the broker discards it if it waits, and its answer if it runs.
 */
class LostException extends GloomException
{
    /**
     * @param ?string $id the job, null if no job is concerned
     * @param bool $acked the broker had accepted the job
     * @param bool $sent part of the submit may have left this process; false: the job never ran
     */
    public function __construct(
        \Throwable $cause,
        public readonly string $addr = '',
        public readonly ?string $id = null,
        public readonly bool $acked = false,
        public readonly bool $sent = true,
    ) {
        $told = $acked ? 'acked' : ($sent ? 'sent, not acked' : 'not sent');
        $about = $id === null ? '' : " with job \"$id\" $told";
        parent::__construct("connection to $addr lost$about: {$cause->getMessage()}", 0, $cause);
    }
}
