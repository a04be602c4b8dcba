<?php

declare(strict_types=1);

namespace Gloom\Exception;

/** Used after close, drain or stop. */
class ClosedException extends GloomException
{
}
