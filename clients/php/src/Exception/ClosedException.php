<?php

declare(strict_types=1);

namespace Gloom\Exception;

/** The object was used after close, drain or stop. */
class ClosedException extends GloomException
{
}
