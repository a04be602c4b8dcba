<?php

declare(strict_types=1);

namespace Gloom\Exception;

/** The base class of this package's exceptions about brokers and jobs. */
class GloomException extends \RuntimeException
{
}
