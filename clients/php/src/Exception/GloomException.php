<?php

declare(strict_types=1);

namespace Gloom\Exception;

/** Base of what this package throws about brokers and jobs. */
class GloomException extends \RuntimeException
{
}
