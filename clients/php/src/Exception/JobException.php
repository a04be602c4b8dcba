<?php

declare(strict_types=1);

namespace Gloom\Exception;

/** A job that the broker had taken ended without an answer, or goes on elsewhere. */
class JobException extends BrokerException
{
    protected const WHAT = 'job ended';
}
