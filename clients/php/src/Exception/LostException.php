<?php

declare(strict_types=1);

namespace Gloom\Exception;

/**
 * The connection was lost while a job or a request was pending on it. The broker clears such
 * a job if it waits, and discards its answer if it runs, unless it is detached or kept.
 */
class LostException extends GloomException
{
    /**
     * @param ?string $id the job, null when no job is meant
     * @param bool $acked the broker had taken the job
     * @param bool $sent some of the submit may have left this process; false: the job never ran
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
