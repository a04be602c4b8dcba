<?php

declare(strict_types=1);

namespace Gloom\Exception;

/** A job that the broker had accepted ended without an answer, or another connection has it now. */
class JobException extends BrokerException
{
    protected const WHAT = 'job ended';
}
