<?php

declare(strict_types=1);

namespace Gloom\Exception;

/** The broker refused a request: nothing has changed. */
class RefusedException extends BrokerException
{
    protected const WHAT = 'refused';

    /** Whether another attempt would only get the same refusal. */
    public function isFinal(): bool
    {
        return !in_array($this->error, ['overloaded', 'draining', 'invalid_state'], true);
    }
}
